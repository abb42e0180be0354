"""Finds a tritonserver, checks the machine, starts it and watches it."""
