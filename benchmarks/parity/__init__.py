"""The service against Pillow and torch on a folder of one's own images: `python -m benchmarks.parity FOLDER`."""
