"""The HTTP port of an auth. If configured, connections are closed while the auth is unhealthy."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

from prometheus_client import Counter

from fleet.nodes.auth.http import AuthHTTP
from fleet.nodes.shared import addresses, asgi_site
from fleet.nodes.shared.instance import Instance
from fleet.protocol.recovery import announce
from fleet.transport.http_close import App, CloseUnhealthyMiddleware


@dataclass(frozen=True, slots=True)
class HTTPFlags:
    """Configuration of the HTTP port."""

    listen: tuple[str, int] = ("127.0.0.1", 0)
    #: Address at which others reach the port; None: the listen address.
    advertise: tuple[str, int] | None = None
    #: TELEPORT_UNSTABLE_HTTP_CLOSE_UNHEALTHY.
    close_unhealthy: bool = False


DEFAULT_HTTP = HTTPFlags()


class AuthSite:
    """The HTTP port of a running auth."""

    def __init__(self, instance: Instance, flags: HTTPFlags) -> None:
        self._instance = instance
        self._flags = flags
        self._stack = AsyncExitStack()
        self.address = ""
        closed_connections = Counter(
            "refloat_auth_http_connections_closed",
            "HTTP connections closed because this auth was unhealthy",
            registry=instance.registry,
        )
        self._app: App = AuthHTTP(instance, flags.listen[0])
        if flags.close_unhealthy:
            self._app = CloseUnhealthyMiddleware(
                self._app, lambda: announce.is_serving(instance.process.state), closed_connections.inc
            )

    async def start(self) -> None:
        """Start listening. Raises NodeStartError."""
        site = asgi_site.serve(self._app, self._flags.listen, self._instance.flags.tls)
        self.address = await self._stack.enter_async_context(site)

    @property
    def advertised_address(self) -> str:
        """host:port at which others reach the port."""
        return addresses.join(*self._flags.advertise) if self._flags.advertise else self.address

    async def stop(self) -> None:
        """Finish responses in progress and stop listening."""
        await self._stack.aclose()
