"""Keeps a Triton answering: what dies is brought back, and who asks is told whether an image gets through.

stubs.py reads the process table, probe.py sends a real image once a second, healing.py loads a model again whose
process died, supervisor.py decides, health.py tells (HTTP, for Kubernetes, Docker and load balancers).
"""
