"""Faults, on purpose, while good traffic goes on: `python -m tests.chaos` says what each of them did to it.

service.py starts the launcher, load.py is the good traffic, fault.py does one fault and judges, table.py shows; each
other file is a group of faults.
"""
