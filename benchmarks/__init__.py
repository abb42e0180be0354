"""Measurements; each module is run by `python -m benchmarks.NAME`."""
