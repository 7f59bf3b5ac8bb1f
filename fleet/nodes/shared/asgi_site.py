"""An ASGI application served by uvicorn on the event loop of an instance."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from typing_extensions import override

from fleet.nodes.shared import addresses, lifecycle
from fleet.processes import background
from fleet.transport import listen_sockets
from fleet.transport.bounded_http import BoundedProtocol
from fleet.transport.http_close import App
from fleet.transport.peers import Caller
from fleet.transport.tls import TLSFiles

#: How long an idle client connection stays open, seconds; longer than load balancers usually keep theirs.
_KEEP_ALIVE = 120
#: Seconds that responses in progress may take when the server stops.
_GRACE = 1

#: Scope key of the client's certificate, a `Caller`; None if the client showed none.
CALLER_KEY = "refloat.caller"


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    @override
    def capture_signals(self) -> Generator[None, None, None]:
        yield  # the program handles signals itself


class _Protocol(BoundedProtocol):
    """Adds the client's certificate to the scope, which uvicorn does not do."""

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        certificate = self.transport.get_extra_info("peercert")
        self.scope["state"][CALLER_KEY] = _caller(certificate) if certificate else None


def _caller(certificate: dict[str, Any]) -> Caller:
    subject = [pair for pairs in certificate.get("subject", ()) for pair in pairs]
    roles = [str(value) for key, value in subject if key == "organizationalUnitName"]
    names = [str(value) for key, value in subject if key == "commonName"]
    # Addresses are left out: every instance on a machine has the same ones.
    names += [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI")]
    return Caller(roles[0] if roles else "", tuple(dict.fromkeys(names)))


@asynccontextmanager
async def serve(app: App, listen: tuple[str, int], tls: TLSFiles) -> AsyncIterator[str]:
    """Serve an application and yield its host:port.

    Raises NodeStartError if the port or the TLS files cannot be used.
    """
    server = _Server(_config(app, tls))
    async with contextlib.AsyncExitStack() as stack:
        bound = await lifecycle.start_listening(listen, listen_sockets.bind(*listen))
        stack.callback(bound.close)
        task = background.start(server.serve(sockets=[bound]), name="HTTP server")
        try:
            yield addresses.join(listen[0], bound.getsockname()[1])
        finally:
            await listen_sockets.stop_accepting([bound])
            server.should_exit = True
            await asyncio.wait([task])


def _config(app: App, tls: TLSFiles) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
        ssl_certfile=tls.certificate,
        ssl_keyfile=tls.key,
        ssl_ca_certs=str(tls.authority) if tls.authority else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if tls.authority else ssl.CERT_NONE,
    )
    try:
        config.load()
    except (OSError, ValueError, ssl.SSLError) as error:
        raise lifecycle.NodeStartError(f"cannot use the TLS files of the HTTP port: {error}") from error
    return config
