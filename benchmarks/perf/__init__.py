"""`python -m benchmarks.perf`: throughput and latency of the service and of each step, and where the time goes."""
