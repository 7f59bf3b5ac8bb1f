"""A proxy's listener for tunnels of version 0.1 of TCP over gRPC, beside its port for version 0.2.

The versions share a path, and no first message tells them apart for certain: docs/nodes.md, "Tunnels".
"""

from __future__ import annotations

import grpc.aio

from fleet.nodes.proxy.reverse_tunnels import ReverseTunnels
from fleet.nodes.shared import addresses, lifecycle
from fleet.protocol.tunnel.messages import WireVersion
from fleet.transport import channels
from fleet.transport.tls import TLSError, TLSFiles


class TunnelV01Listener:
    """A port on which clients speak version 0.1."""

    def __init__(self, listen: tuple[str, int], tls: TLSFiles, tunnels: ReverseTunnels) -> None:
        self._listen = listen
        self._tls = tls
        self._server = grpc.aio.server(options=channels.server_options())
        tunnels.add_tunnels_to(self._server, WireVersion.V0_1)
        #: Where it listens, once it does.
        self.address = ""

    async def start(self) -> None:
        """Listen. Raises StartError."""
        listen_address = addresses.join(*self._listen)
        try:
            port = channels.add_port(self._server, listen_address, self._tls)
        except RuntimeError:
            raise lifecycle.NodeStartError(
                f"cannot listen on {listen_address} for tunnels of version 0.1: the port is in use, or not allowed"
            ) from None
        except TLSError as error:
            raise lifecycle.NodeStartError(str(error)) from None
        self.address = addresses.join(self._listen[0], port)
        await self._server.start()

    async def stop(self) -> None:
        """End it and its connections."""
        await self._server.stop(grace=0)
