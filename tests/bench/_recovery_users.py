"""Does a user connection break? Long-lived ones through all that recovery does to a fleet of real processes.

An auth loses its backend and agents leave it; the agents of every proxy are advised to reconnect; tunnels that are not
needed are closed gracefully; every proxy is replaced by one of a newer generation, and ends with its last user.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import grpc.aio

from fleet.nodes.local.forward_names import ForwardMode
from fleet.nodes.local.forwards import Forward
from fleet.nodes.shared import addresses
from fleet.processes import valkey
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.bench._recovery_connections import Users
from tests.bench.measure import BenchError, Figure, Target
from tests.fakes.programs import Peer, PeerError, running
from tests.fakes.tcp import echoing
from tests.meta.house import ROOT

_READY = r'\{"event": ?"ready".*\}'
#: Of auths' and proxies' resources, and of agents'.
_TTL, _AGENT_TTL = "2s", "4s"
_POLICY = json.dumps(
    {
        "healthCheckConfig": {"serviceName": ""},
        "loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}],
    }
)
_SERVICE = "echo"
#: Until something happens that must, seconds; and how often we look.
_PATIENCE, _LOOK = 120.0, 0.2
_TUNNELS = 2

TARGETS = (Target("users_bytes_lost", at_most=0), Target("users_broken", at_most=0))


@dataclass(frozen=True, slots=True)
class Size:
    """How many of each."""

    users: int
    agents: int
    proxies: int


WHOLE = Size(users=200, agents=40, proxies=4)
QUICK = Size(users=12, agents=4, proxies=4)


def measure(size: Size) -> Mapping[str, Figure]:
    """Play it all. Raises BenchError when the fleet does not do what it must."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder, ExitStack() as stack:
        backend = valkey.start(Path(folder) / "backend", persist=False)
        stack.callback(backend.stop)
        try:
            return asyncio.run(_Scenario(size, Path(folder), stack, backend.url).play())
        except PeerError as error:
            raise BenchError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Node:
    """A process of the fleet, and what it said when it was ready."""

    name: str
    peer: Peer
    said: Mapping[str, str]


class _Scenario:
    """One fleet, its users, and what is done to them."""

    def __init__(self, size: Size, folder: Path, stack: ExitStack, backend: str) -> None:
        self._size = size
        self._folder = folder
        self._stack = stack
        self._backend = backend
        self._figures: dict[str, Figure] = {"users": size.users, "users_agents": size.agents}
        self._proxies: list[_Node] = []
        self._users = Users(_SERVICE)

    async def play(self) -> Mapping[str, Figure]:
        """Start it, do everything to it, let the users end, and count."""
        url = urlsplit(self._backend)
        cut = Forward("backend of auth-1", ("127.0.0.1", 0), addresses.parse(url.netloc.rpartition("@")[2]))
        await cut.start()
        async with aiohttp.ClientSession() as self._http, echoing() as service:
            try:
                await self._start(service, f"redis://:{url.password}@{addresses.join(*cut.listen)}/0")
                await self._connect_users()
                for step in (
                    lambda: self._cut_auth(cut),
                    self._advise,
                    self._close_gracefully,
                    self._replace,
                ):
                    began = time.monotonic()
                    name = await step()
                    self._figures[f"users_{name}_s"] = time.monotonic() - began
                    self._tell(name)
                await self._end()
            finally:
                await cut.stop()
        return self._figures

    # What there is.

    async def _start(self, service: int, backend_of_auth_1: str) -> None:
        auths = [
            await self._node("auth", f"auth-{n}", "--backend", backend)
            for n, backend in ((1, backend_of_auth_1), (2, self._backend))
        ]
        self._auths = auths
        ports = [valkey.free_port() for _ in range(2 * 2 * self._size.proxies)]
        self._ports = [(ports[2 * n], ports[2 * n + 1]) for n in range(2 * self._size.proxies)]
        for n in range(self._size.proxies):
            await self._start_proxy(n, generation=1)
        balancers = [
            await self._balancer("auths", [(one.name, one.said["grpc"], one.said["diag"]) for one in auths]),
            await self._balancer(
                "proxies",
                [
                    (f"proxy-{n + 1}", f"127.0.0.1:{port}", f"127.0.0.1:{diag}")
                    for n, (port, diag) in enumerate(self._ports)
                ],
            ),
        ]
        await self._configure("tunnel_strategy.type=proxy_peering", f"agent_connection_count={_TUNNELS}")
        self._agents = await self._node(
            "agent",
            "agents",
            *("--count", str(self._size.agents), "--auth", balancers[0].said["listen"]),
            *("--proxy", balancers[1].said["listen"], "--announce-ttl", _AGENT_TTL),
            *("--service", f"{_SERVICE}=127.0.0.1:{service}", "--diag-listen", "127.0.0.1:0"),
        )
        await self._until(lambda: self._have(_TUNNELS), f"every agent has {_TUNNELS} tunnels")

    async def _start_proxy(self, number: int, generation: int) -> None:
        port, diag = self._ports[number]
        self._proxies.append(
            await self._node(
                "proxy",
                f"proxy-{number + 1}",
                *("--backend", self._backend, "--listen", f"127.0.0.1:{port}"),
                *("--diag-listen", f"127.0.0.1:{diag}", "--connect-listen", "127.0.0.1:0", "--drain", "15m"),
                TELEPORT_UNSTABLE_PROXYGROUP_ID="blue",
                TELEPORT_UNSTABLE_PROXYGROUP_GEN=str(generation),
            )
        )

    async def _balancer(self, name: str, targets: list[tuple[str, str, str]]) -> _Node:
        words = [word for one in targets for word in ("--target", f"{one[0]}={one[1]},{one[2]}")]
        return await self._node("balancer", name, *words, "--interval", "0.2")

    async def _node(self, role: str, name: str, *words: str, **variables: str) -> _Node:
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TELEPORT_UNSTABLE_AUTH_ANNOUNCE_TTL": _TTL,
            "TELEPORT_UNSTABLE_PROXY_ANNOUNCE_TTL": _TTL,
            "TELEPORT_UNSTABLE_GRPC_SERVICE_CONFIG": _POLICY,
            **variables,
        }
        named = [] if role == "agent" else ["--name", name]
        argv = [sys.executable, "-m", "fleet.nodes", role, *named, *words]
        peer = self._stack.enter_context(running(name, argv, self._folder, env=env))
        ready = await asyncio.to_thread(peer.await_words, _READY)
        return _Node(name, peer, json.loads(ready.group()))

    async def _configure(self, *settings: str) -> None:
        words = ("fleet", "config", "set", "--auth", self._auths[1].said["grpc"], *settings)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fleet.cli.main", *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        if process.returncode:
            raise BenchError(f"refloat {' '.join(words)}: {said.decode(errors='replace')}")

    async def _connect_users(self) -> None:
        for number in range(self._size.users):
            first = number % len(self._proxies)
            order = [*self._proxies[first:], *self._proxies[:first]]
            agent = f"agent-{number % self._size.agents + 1}"
            await self._users.connect(agent, [(one.name, one.said["connect"]) for one in order])

    # What is done to them.

    async def _cut_auth(self, cut: Forward) -> str:
        """The first auth cannot write to the backend: it says so, and agents move to the other one."""
        await cut.change(mode=ForwardMode.CUT)
        await self._until(self._all_on_second_auth, "every agent heartbeats by auth-2")
        await cut.change(mode=ForwardMode.PASS)
        return "auth_failover"

    async def _all_on_second_auth(self) -> bool:
        async with grpc.aio.insecure_channel(self._auths[1].said["grpc"]) as channel:
            listed = await fleet_pb2_grpc.AgentFeedStub(channel).ListAgents(fleet_pb2.ListAgentsRequest())
        there = [entry for entry in listed.agents if entry.auth_id == self._auths[1].said["id"]]
        return len(there) == len(listed.agents) == self._size.agents

    async def _advise(self) -> str:
        """Every proxy's agents in turn, as an operator would."""
        advised = staying = 0
        for proxy in list(self._proxies):
            answer = await self._advise_one(proxy, str(uuid.uuid4()))
            advised += answer.advised
            staying += await self._left(proxy, answer.advised)
            await self._until(lambda: self._have(_TUNNELS), "every agent has its tunnels again")
        self._figures |= {"users_advised": advised, "users_advised_and_stayed": staying}
        return "advisories"

    async def _advise_one(self, proxy: _Node, advisory: str) -> fleet_pb2.AdviseReconnectResponse:
        async with grpc.aio.insecure_channel(proxy.said["grpc"]) as channel:
            request = fleet_pb2.AdviseReconnectRequest(advisory_id=advisory, reason="the bench asks for it")
            answer: fleet_pb2.AdviseReconnectResponse = await fleet_pb2_grpc.TunnelAdminStub(
                channel
            ).AdviseReconnect(request)
            return answer

    async def _left(self, proxy: _Node, advised: int) -> int:
        """Wait until all that were advised have left the proxy for new users, or said that they stay; who stays."""
        at = rf"(\S+): proxy {re.escape(proxy.said['id'])}: "

        def agents(event: str, why: str = "") -> set[str]:
            return set(re.findall(rf"tunnel\.{event}: {at}{why}", self._agents.peer.said()))

        def done() -> bool:
            stay, going = agents("stays", "the bench"), agents("advised", "the bench")
            return len(stay | going) >= advised and going <= agents("closing") | agents("closed")

        await self._until(done, f"the advised agents left {proxy.name}")
        return len(agents("stays", "the bench"))

    async def _close_gracefully(self) -> str:
        """Fewer tunnels are wanted, and those in excess may close after a second or two."""
        await self._configure(
            *("agent_connection_count=1", "graceful_tunnel_closing=true"),
            *("tunnel_closing_wait_min=1s", "tunnel_closing_wait_max=2s"),
        )
        pattern = r"tunnel\.closing: \S+: proxy \S+: excess"
        await self._until(
            lambda: len(re.findall(pattern, self._agents.peer.said())) >= self._size.agents,
            "every agent let a tunnel go",
        )
        self._figures["users_tunnels_closed_gracefully"] = len(re.findall(pattern, self._agents.peer.said()))
        return "graceful_closing"

    async def _replace(self) -> str:
        """Each proxy by one of the next generation; the old one takes nobody new, and lives while its users do."""
        old = list(self._proxies)
        for number in range(self._size.proxies):
            await self._start_proxy(self._size.proxies + number, generation=2)
            old[number].peer.process.terminate()
            await self._until(lambda: self._have(1), "every agent has a tunnel to a proxy that stays")
        self._old, self._proxies = old, self._proxies[self._size.proxies :]
        await self._until(self._all_on_new_proxies, "every agent has a tunnel to a new proxy")
        before = len(self._users.all)
        for number in range(self._size.agents):
            where = [(one.name, one.said["connect"]) for one in self._proxies]
            await self._users.connect(f"agent-{number + 1}", where)
        self._figures["users_connected_after_it"] = len(self._users.all) - before
        self._figures["users_old_proxies_alive"] = sum(one.peer.process.poll() is None for one in old)
        return "replacement"

    async def _all_on_new_proxies(self) -> bool:
        found = set()
        for proxy in self._proxies:
            async with grpc.aio.insecure_channel(proxy.said["grpc"]) as channel:
                listed = await fleet_pb2_grpc.TunnelFeedStub(channel).ListTunnels(
                    fleet_pb2.ListTunnelsRequest()
                )
            found |= {tunnel.agent_id for tunnel in listed.tunnels}
        return len(found) == self._size.agents

    async def _end(self) -> None:
        """The users end by themselves, and with the last of them the old proxies."""
        await self._users.finish()
        began = time.monotonic()
        await self._until(
            lambda: all(one.peer.process.poll() is not None for one in self._old), "the old proxies ended"
        )
        users = self._users.all
        broken = [user for user in users if not user.whole]
        for user in broken[:5]:
            print(f"broken: {user.agent} by {user.proxy}: {user.broke or 'bytes differ'}", file=sys.stderr)
        self._figures |= {
            "users_mb": sum(user.sent + user.received for user in users) / 1e6,
            "users_bytes_lost": sum(max(user.lost, 0) for user in users),
            "users_broken": len(broken),
            "users_old_proxies_ended_after_s": time.monotonic() - began,
            "users_old_proxies_failed": sum(one.peer.process.returncode != 0 for one in self._old),
        }

    # How we look.

    async def _have(self, tunnels: int) -> bool:
        """Every agent has at least so many tunnels that are not on their way out."""
        async with self._http.get(f"http://{self._agents.said['diag']}/metrics") as answer:
            text = await answer.text()
        found = re.findall(r'refloat_agent_tunnels\{actual="(\d+)",desired="\d+"\} (\d+)', text)
        return sum(int(agents) for actual, agents in found if int(actual) >= tunnels) == self._size.agents

    async def _until(self, met: Callable[[], bool | Awaitable[bool]], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            found = met()
            if found if isinstance(found, bool) else await found:
                return
            if time.monotonic() > deadline:
                raise BenchError(f"waited {_PATIENCE:g} s until {what}; agents said: {self._last_words()}")
            await asyncio.sleep(_LOOK)

    def _last_words(self) -> str:
        return "\n".join(self._agents.peer.said().splitlines()[-10:])

    def _tell(self, step: str) -> None:
        broken = sum(bool(user.broke) for user in self._users.all)
        print(f"users: {step} done, {broken} of {len(self._users.all)} broken", file=sys.stderr, flush=True)
