"""A mail server that takes what it is given, on a real port, and may be away for a while."""

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
    """A mail server on a port that stays its own while it is away."""
    box = Mailbox(valkey.free_port())
    if up:
        box.start()
    try:
        yield box
    finally:
        box.stop()


def _talk(handler: StreamRequestHandler, box: Mailbox) -> None:
    """RFC 5321 as far as one message needs it."""

    def say(line: str) -> None:
        handler.wfile.write(f"{line}\r\n".encode())

    say("220 ready")
    while line := handler.rfile.readline():
        word = line.split()[0].upper() if line.split() else b""
        if word == b"QUIT":
            say("221 bye")
            return
        if word != b"DATA":
            say("250 ok")
            continue
        say("354 go on")
        taken = []
        while (line := handler.rfile.readline()) not in (b".\r\n", b""):
            taken.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        box.messages.append(cast("EmailMessage", message_from_bytes(b"".join(taken), policy=policy.default)))
        say("250 taken")
