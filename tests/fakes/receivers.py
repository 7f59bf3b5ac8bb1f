"""A webhook server that records every request and responds with the statuses that a test sets."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """The requests that arrived, and the statuses of the next responses."""

    url: str = ""
    #: Statuses of the next responses; 200 after the last of them.
    statuses: list[int] = field(default_factory=list)
    #: (path, headers, body).
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def bodies(self) -> list[Any]:
        """The request bodies as JSON; a notification that was sent again because its response was late occurs once."""
        by_key = dict(reversed(self._by_key()))
        return [json.loads(by_key[delivery_key]) for delivery_key in self.keys]

    @property
    def keys(self) -> list[str]:
        """The notification keys without duplicates."""
        return list(dict.fromkeys(key for key, _ in self._by_key()))

    def _by_key(self) -> list[tuple[str, bytes]]:
        """Return (key, body) of each request; a request without a key gets a key of its own."""
        return [
            (headers.get("Refloat-Key", f"request {number}"), body)
            for number, (_, headers, body) in enumerate(self.requests)
        ]


@contextmanager
def run_receiver(*statuses: int) -> Iterator[Receiver]:
    """Run a receiver on a free port."""
    receiver = Receiver(statuses=list(statuses))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            receiver.requests.append((self.path, dict(self.headers.items()), body))
            status = receiver.statuses.pop(0) if receiver.statuses else 200
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", receiver.url)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
