"""A server that takes messages as webhooks do, and does as a test says: status by status, remembering every request."""

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
    """What came, and what is answered."""

    url: str = ""
    #: Answers of the next requests; 200 when there are none left.
    answers: list[int] = field(default_factory=list)
    #: (path, headers, body).
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    @property
    def bodies(self) -> list[Any]:
        """What came, read as JSON; a message that came again, because its answer was late, once."""
        by_key = dict(reversed(self._by_key()))
        return [json.loads(by_key[key]) for key in self.taken]

    @property
    def taken(self) -> list[str]:
        """Keys of messages as a receiver sees them that drops those it has seen."""
        return list(dict.fromkeys(key for key, _ in self._by_key()))

    def _by_key(self) -> list[tuple[str, bytes]]:
        """Bodies by key; those of senders that know no key are all others."""
        return [
            (headers.get("Refloat-Key", f"request {number}"), body)
            for number, (_, headers, body) in enumerate(self.requests)
        ]


@contextmanager
def receiving(*answers: int) -> Iterator[Receiver]:
    """Serve on a port of the system's choice."""
    receiver = Receiver(answers=list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            receiver.requests.append((self.path, dict(self.headers.items()), body))
            status = receiver.answers.pop(0) if receiver.answers else 200
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", receiver.url)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

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
