"""The listener of a proxy for tunnels of version 0.1 of TCP over gRPC, beside its port for version 0.2.

Both versions use the same path, and no first message tells them apart reliably: docs/reference/nodes.md, "Tunnels".
"""

from __future__ import annotations

import grpc.aio

from fleet.nodes.proxy.reverse_tunnels import ReverseTunnels
from fleet.nodes.shared import addresses, lifecycle
from fleet.protocol.tunnel.messages import WireVersion
from fleet.transport import channels
from fleet.transport.tls import TLSError, TLSFiles


class TunnelV01Listener:
    """A port for clients of version 0.1."""

    def __init__(self, listen: tuple[str, int], tls: TLSFiles, tunnels: ReverseTunnels) -> None:
        self._listen = listen
        self._tls = tls
        self._server = grpc.aio.server(options=channels.server_options())
        tunnels.add_tunnels_to(self._server, WireVersion.V0_1)
        #: host:port, once the listener has started.
        self.address = ""

    async def start(self) -> None:
        """Start listening. Raises NodeStartError."""
        listen_address = addresses.join(*self._listen)
        try:
            port = channels.add_port(self._server, listen_address, self._tls)
        except RuntimeError:
            raise lifecycle.NodeStartError(
                f"cannot listen on {listen_address} for tunnels of version 0.1: the port is in use, or "
                "this user may not "
                "use it"
            ) from None
        except TLSError as error:
            raise lifecycle.NodeStartError(str(error)) from None
        self.address = addresses.join(self._listen[0], port)
        await self._server.start()

    async def stop(self) -> None:
        """Stop listening and end all connections."""
        await self._server.stop(grace=0)
