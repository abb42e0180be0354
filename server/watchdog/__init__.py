"""Keeps a Triton answering: what dies is brought back, and who asks is told whether an image gets through.

stubs.py reads the process table, probe.py sends a real image once a second, backlog.py has requests refused that would
only wait, healing.py loads a model again whose process died; watch.py does all of that to one Triton, supervisor.py
starts the next one, and health.py tells (HTTP, for Kubernetes, Docker and load balancers).
"""
