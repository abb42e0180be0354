"""Small HTTP servers on this machine."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serving(files: dict[str, bytes], cut_short: frozenset[str] = frozenset()) -> Iterator[str]:
    """Answer GET with `files`, by path, those of `cut_short` only in part; anything else with 404. Yields the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(self.path)
            if content is None:
                return self.send_error(404)
            self.send_response(200)
            self.send_header("Content-Length", str(len(content) + (self.path in cut_short)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.send_error(404)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
