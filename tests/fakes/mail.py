"""A mail server on a real port that accepts every message, and can be stopped for a while."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import cast

from typing_extensions import override

from fleet.processes import valkey


@dataclass
class Mailbox:
    """What came, and where the server is."""

    port: int
    messages: list[EmailMessage] = field(default_factory=list)
    server: ThreadingTCPServer | None = None

    @property
    def subjects(self) -> list[str]:
        """Of what came, oldest first."""
        return [str(message["Subject"]) for message in self.messages]

    def start(self) -> None:
        """Listen on its port."""
        box = self

        class Handler(StreamRequestHandler):
            @override
            def handle(self) -> None:
                _talk(self, box)

        class Server(ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self.server = Server(("127.0.0.1", self.port), Handler)
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    def stop(self) -> None:
        """Be away: connections are refused."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None


@contextmanager
def mail_server(*, up: bool = True) -> Iterator[Mailbox]:
    """Run a mail server on a port that stays reserved while the server is stopped."""
    box = Mailbox(valkey.find_free_port())
    if up:
        box.start()
    try:
        yield box
    finally:
        box.stop()


def _talk(handler: StreamRequestHandler, box: Mailbox) -> None:
    """RFC 5321 as far as one message needs it."""

    def send_line(line: str) -> None:
        handler.wfile.write(f"{line}\r\n".encode())

    send_line("220 ready")
    while line := handler.rfile.readline():
        verb = line.split()[0].upper() if line.split() else b""
        if verb == b"QUIT":
            send_line("221 bye")
            return
        if verb != b"DATA":
            send_line("250 ok")
            continue
        send_line("354 go on")
        lines = []
        while (line := handler.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        box.messages.append(cast("EmailMessage", message_from_bytes(b"".join(lines), policy=policy.default)))
        send_line("250 taken")
