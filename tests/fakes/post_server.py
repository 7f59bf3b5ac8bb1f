"""A local HTTP server that hands each POST request to a function, for the strict receivers of notifications."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class PostedRequest:
    """A POST request. The names of its headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        """Content type without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class PostAnswer:
    """The response to a POST request."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def serve_posts(answer: Callable[[PostedRequest], PostAnswer]) -> Iterator[str]:
    """Answer POST requests on a free port with a function, and yield the base URL. One request at a time."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            headers = {name.lower(): text for name, text in self.headers.items()}
            with lock:
                response = answer(PostedRequest(self.path, headers, body))
            self.send_response(response.status)
            for name, text in response.headers.items():
                self.send_header(name, text)
            self.send_header("Content-Length", str(len(response.body)))
            # The sender may have been killed, or given up.
            with suppress(ConnectionError):
                self.end_headers()
                self.wfile.write(response.body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
