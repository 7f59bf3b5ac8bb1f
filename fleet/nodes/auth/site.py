"""An auth's HTTP port: the auth API's HTTP part, closing connections while the auth is unhealthy if that is wanted."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

from prometheus_client import Counter

from fleet.nodes.auth.http import AuthHTTP
from fleet.nodes.shared import addresses, asgi_site
from fleet.nodes.shared.instance import Instance
from fleet.protocol.recovery import announce
from fleet.transport.http_close import App, CloseUnhealthy


@dataclass(frozen=True, slots=True)
class HTTPFlags:
    """How an auth serves HTTP."""

    listen: tuple[str, int] = ("127.0.0.1", 0)
    #: Where others reach it; None: the port itself.
    advertise: tuple[str, int] | None = None
    #: TELEPORT_UNSTABLE_HTTP_CLOSE_UNHEALTHY.
    close_unhealthy: bool = False


DEFAULT_HTTP = HTTPFlags()


class AuthSite:
    """The port, once the auth runs."""

    def __init__(self, instance: Instance, flags: HTTPFlags) -> None:
        self._instance = instance
        self._flags = flags
        self._stack = AsyncExitStack()
        self.address = ""
        closed_connections = Counter(
            "refloat_auth_http_connections_closed",
            "HTTP connections ended because this auth is unhealthy",
            registry=instance.registry,
        )
        self._app: App = AuthHTTP(instance, flags.listen[0])
        if flags.close_unhealthy:
            self._app = CloseUnhealthy(
                self._app, lambda: announce.is_serving(instance.process.state), closed_connections.inc
            )

    async def start(self) -> None:
        """Listen. Raises StartError."""
        site = asgi_site.serve(self._app, self._flags.listen, self._instance.flags.tls)
        self.address = await self._stack.enter_async_context(site)

    @property
    def advertised_address(self) -> str:
        """Where others reach the port."""
        return addresses.join(*self._flags.advertise) if self._flags.advertise else self.address

    async def stop(self) -> None:
        """End responses under way, and listen no more."""
        await self._stack.aclose()
