"""The HTTP requests that carry an image file, as bytes: made before any load, so that sending them costs nothing."""

import base64
import http.client
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import BenchmarkError

HOST = "127.0.0.1"
ASK_TIMEOUT_S = 60
BOUNDARY = "the-boundary-of-the-parts"


@dataclass(frozen=True)
class Encoding:
    """How a kind of server wants its images."""

    name: str
    path: str
    headers: dict[str, str]
    body: Callable[[bytes], bytes]

    def request(self, file: bytes) -> bytes:
        """A whole request of HTTP/1.1."""
        body = self.body(file)
        headers = {"Host": HOST, **self.headers, "Content-Length": str(len(body))}
        lines = [f"POST {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode() + body

    def write(self, files: Sequence[Path], folder: Path) -> Path:
        """Write a request for each file into a folder of its own in `folder`, and return that."""
        own = folder / self.name
        own.mkdir()
        for number, file in enumerate(files):
            (own / f"{number:04}").write_bytes(self.request(file.read_bytes()))
        return own

    def ask(self, port: int, file: Path) -> bytes:
        """Send one; return the answer's body. Raises OSError where nobody listens, BenchmarkError for another status
        than 200."""
        connection = http.client.HTTPConnection(HOST, port, timeout=ASK_TIMEOUT_S)
        try:
            connection.request("POST", self.path, self.body(file.read_bytes()), self.headers)
            reply = connection.getresponse()
            answer = reply.read()
        except http.client.HTTPException as error:
            raise BenchmarkError(f"port {port}: expected an answer, got {error!r}") from error
        finally:
            connection.close()
        if reply.status != 200:
            raise BenchmarkError(f"{file}: expected HTTP status 200, got {reply.status}: {answer[:500]!r}")
        return answer


def as_json(file: bytes) -> bytes:
    return json.dumps({"image": base64.b64encode(file).decode()}).encode()


def as_form(file: bytes) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="images"; filename="image"\r\n\r\n'
    return head.encode() + file + f"\r\n--{BOUNDARY}--\r\n".encode()


def as_is(file: bytes) -> bytes:
    return file


OCTETS = {"Content-Type": "application/octet-stream"}
TRITON = Encoding("triton", "/v2/models/pipeline/infer", {**OCTETS, "Inference-Header-Content-Length": "0"}, as_is)
RAW = Encoding("raw", "/classify", OCTETS, as_is)
JSON = Encoding("json", "/classify", {"Content-Type": "application/json"}, as_json)
FORM = Encoding("form", "/classify", {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}, as_form)
ENCODINGS = (TRITON, RAW, JSON, FORM)
