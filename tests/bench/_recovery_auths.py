"""Auths for the bench `recovery`, in a process of their own: health, service config and `/readyz`, by command.

    python -m tests.bench._recovery_auths COUNT

Commands on stdin, a response on stdout for each: `out N` (503 on /readyz alone), `flip N` (becomes unhealthy; responds
with the time), `heal`, `asked` (how many config requests all got: one per connection), `settled N` (how many agents
sent their last heartbeat to auth N, with a tunnel), `answered N` (when each agent's first heartbeat was answered by
another auth than N, by the machine's monotonic clock).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import grpc
import grpc.aio
import uvloop
from aiohttp import web

from fleet.nodes.shared import http_site
from fleet.protocol.recovery import announce, service_config
from fleet.protocol.recovery.service_config import PickHealthyMode, ServiceConfig
from fleet.transport import channels
from fleet.transport.health import HealthServicer
from fleet.transport.process import ProcessHealth
from fleet.transport.service_config import AUTH_ID_METADATA
from fleet.wire import fleet_pb2, fleet_pb2_grpc, grpcclientconfig_pb2, grpcclientconfig_pb2_grpc

NAME_METHOD = "/bench.Who/Who"
_CONFIG = ServiceConfig(PickHealthyMode.RECONNECT, "")


class BenchAuth:
    """One auth."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_out = False
        self.config_requests = 0
        #: Of each agent: the moment of its first heartbeat here, and the number of tunnels in its last one.
        self.first_heartbeats: dict[str, float] = {}
        self.tunnel_counts: dict[str, int] = {}
        self.process = ProcessHealth(tick=0.0)
        self.process.register("auth")
        self._answer = grpcclientconfig_pb2.GetServiceConfigResponse.FromString(
            service_config.encode(_CONFIG)
        )

    async def start(self, stack: AsyncExitStack) -> dict[str, str]:
        """Listen on both ports and return the addresses."""
        server = grpc.aio.server(options=channels.server_options())
        HealthServicer(self.process).add_to(server)
        grpcclientconfig_pb2_grpc.add_ServiceConfigDiscoveryServiceServicer_to_server(self, server)
        fleet_pb2_grpc.add_HeartbeatServiceServicer_to_server(self, server)
        name_method = grpc.unary_unary_rpc_method_handler(self._send_name)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("bench.Who", {"Who": name_method}),)
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        stack.push_async_callback(server.stop, 0)
        app = web.Application()
        app.router.add_get("/readyz", self._readyz)
        diag = await stack.enter_async_context(http_site.serve(app, ("127.0.0.1", 0)))
        self.heal()
        return {"grpc": f"127.0.0.1:{port}", "diag": diag}

    def flip(self) -> float:
        """Become unhealthy now; return the moment by the monotonic clock of this machine."""
        at = time.monotonic()
        self.process.record_failure("auth")
        return at

    def heal(self) -> None:
        """Become healthy: one heartbeat, and another to leave *recovering*."""
        self.is_out = False
        for _ in range(2):
            self.process.record_success("auth", time.monotonic())

    async def GetServiceConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        del request
        self.config_requests += 1
        context.set_trailing_metadata(((AUTH_ID_METADATA, self.name),))
        return self._answer

    async def Heartbeat(self, request: fleet_pb2.HeartbeatRequest, context: Any) -> Any:  # noqa: N802
        """Keep the agent's number of tunnels; nothing is written to a backend."""
        del context
        agent = request.agent
        self.tunnel_counts[agent.agent_id] = len(agent.tracker.claimed)
        self.first_heartbeats.setdefault(agent.agent_id, time.monotonic())
        return fleet_pb2.HeartbeatResponse(auth_id=self.name)

    async def Deregister(self, request: fleet_pb2.DeregisterRequest, context: Any) -> Any:  # noqa: N802
        """Forget nothing: agents deregister when the bench ends."""
        del request, context
        return fleet_pb2.DeregisterResponse()

    async def _send_name(self, request: bytes, context: Any) -> bytes:
        del request, context
        return self.name.encode()

    async def _readyz(self, request: web.Request) -> web.Response:
        del request
        ready = not self.is_out and announce.is_serving(self.process.state)
        return web.Response(status=200 if ready else 503)


async def serve(count: int) -> None:
    """Run until stdin ends."""
    auths = [BenchAuth(f"auth-{number}") for number in range(count)]
    async with AsyncExitStack() as stack:
        _print_answer({"auths": [await auth.start(stack) for auth in auths]})
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while line := (await reader.readline()).decode().split():
            _print_answer(_execute(auths, *line))


def _execute(auths: list[BenchAuth], command: str, number: str = "0") -> dict[str, Any]:
    auth = auths[int(number)]
    if command == "out":
        auth.is_out = True
    elif command == "flip":
        return {"at": auth.flip()}
    elif command == "settled":
        return {"settled": sum(count > 0 for count in auth.tunnel_counts.values())}
    elif command == "answered":
        moments: dict[str, float] = {}
        for other_auth in auths:
            if other_auth is not auth:
                for agent, at in other_auth.first_heartbeats.items():
                    moments[agent] = min(at, moments.get(agent, at))
        return {"answered": list(moments.values())}
    elif command == "heal":
        for each_auth in auths:
            each_auth.heal()
    return {"asked": sum(each_auth.config_requests for each_auth in auths)}


def _print_answer(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
