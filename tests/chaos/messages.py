"""One image as an HTTP request, of which only the class is wanted back, as JSON."""

import json
import re

PATH = "/v2/models/pipeline/infer"
HEADER_LENGTH = "Inference-Header-Content-Length"


def http_message(file: bytes) -> tuple[str, bytes, dict[str, str]]:
    """Path, body and headers."""
    size = {"binary_data_size": len(file)}
    image = {"name": "raw_image", "shape": [1, len(file)], "datatype": "UINT8", "parameters": size}
    wanted = [{"name": "class_id", "parameters": {"binary_data": False}}]
    header = json.dumps({"inputs": [image], "outputs": wanted}).encode()
    return PATH, header + file, {HEADER_LENGTH: str(len(header))}


def http_request(file: bytes) -> bytes:
    """The same as it goes over the connection."""
    path, body, headers = http_message(file)
    return http_head(path, {**headers, "Content-Length": str(len(body))}) + body


def http_head(path: str, headers: dict[str, str]) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


def class_of_reply(body: bytes) -> int:
    """The highest class; -1 where there is none."""
    found = re.search(rb'"data":\[(-?\d+)', body)
    return int(found[1]) if found else -1
