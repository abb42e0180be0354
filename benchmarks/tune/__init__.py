"""`python -m benchmarks.tune`: the settings that suit this machine, found under load, written as a config variant."""
