"""A console on a real port that returns the responses of a test, for tests of commands that call an API client."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

TOKEN = "the-token"


@dataclass
class FakeConsole:
    """Responses by path with query: (status, JSON or bytes, or an iterator of them).

    A dry run gets the response of its path without the query.
    """

    url: str = ""
    responses: dict[str, tuple[int, Any]] = field(default_factory=dict)
    requested_paths: list[str] = field(default_factory=list)
    #: (path, body, headers) of each POST request.
    posts: list[tuple[str, Any, dict[str, str]]] = field(default_factory=list)


@contextmanager
def run_console() -> Iterator[FakeConsole]:
    """Run a console on a free port."""
    console = FakeConsole()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            console.requested_paths.append(self.path)
            if self.headers["Authorization"] != f"Bearer {TOKEN}":
                code, body = 401, {"detail": "Unauthorized"}
            else:
                path = self.path.removesuffix("?dry_run=true")
                code, body = console.responses.get(path, (404, {"detail": "There is no such thing."}))
            body = next(body) if isinstance(body, Iterator) else body
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.title(): value for name, value in self.headers.items()}
            console.posts.append((self.path, json.loads(body), headers))
            self.do_GET()

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        console.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield console
        finally:
            server.shutdown()
            thread.join()
