"""`python -m tests.decode_once FILE MAX_IMAGE_PIXELS`: decode in a process of its own, print as JSON what it took."""

import io
import json
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

from python_models.preprocess.decode import Limits, decode
from python_models.preprocess.errors import InvalidImageError


def memory_bytes(field: str) -> int:
    """Read VmRSS, the memory of this process now, or VmHWM, the most it ever had. Source: proc(5)."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def main() -> None:
    path, limits = (
        sys.argv[1],
        Limits(max_image_bytes=1 << 27, max_image_pixels=int(sys.argv[2]), max_image_frames=1000, max_jpeg_scans=20),
    )
    for format in ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF", "PPM"):  # loads the libraries
        small = io.BytesIO()
        Image.new("RGB", (16, 16)).save(small, format)
        decode(np.frombuffer(small.getvalue(), np.uint8), limits)
    file = np.fromfile(path, np.uint8)
    before, started = memory_bytes("VmRSS"), time.process_time()
    try:
        image = decode(file, limits)
        outcome, pixels = "pixels", image.shape[0] * image.shape[1]
    except InvalidImageError as error:
        outcome, pixels = str(error), 0
    cpu_s, grown_bytes = time.process_time() - started, max(memory_bytes("VmHWM") - before, 0)
    print(json.dumps({"outcome": outcome, "pixels": pixels, "cpu_s": cpu_s, "grown_bytes": grown_bytes}))


if __name__ == "__main__":
    main()
