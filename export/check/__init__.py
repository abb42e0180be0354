"""An offline linter of model repositories: what Triton would refuse, or take and then do something else.

Each rule is a small function from a model, or an ensemble and its neighbours, to findings; linter.py runs them all.
"""
