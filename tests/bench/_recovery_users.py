"""Long-lived user connections during every recovery step of a fleet of real processes: does one break?

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
from tests.fakes.programs import Peer, PeerError, run_program
from tests.fakes.tcp import serve_echo
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
#: Timeout of a wait, and interval of its checks.
_WAIT_TIMEOUT, _CHECK_INTERVAL = 120.0, 0.2
_TUNNELS = 2

TARGETS = (Target("users_bytes_lost", at_most=0), Target("users_broken", at_most=0))


@dataclass(frozen=True, slots=True)
class Size:
    """How many of each."""

    users: int
    agents: int
    proxies: int


WHOLE = Size(users=200, agents=40, proxies=4)
QUICK = Size(users=4, agents=4, proxies=2)


def measure(size: Size) -> Mapping[str, Figure]:
    """Run all steps. Raises BenchError when the fleet does not reach an expected state."""
    with tempfile.TemporaryDirectory(prefix="refloat-bench-") as folder, ExitStack() as stack:
        backend = valkey.start(Path(folder) / "backend", persist=False)
        stack.callback(backend.stop)
        try:
            return asyncio.run(_Scenario(size, Path(folder), stack, backend.url).run())
        except PeerError as error:
            raise BenchError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Node:
    """A process of the fleet and the content of its ready line."""

    name: str
    peer: Peer
    ready: Mapping[str, str]


class _Scenario:
    """One fleet, its users and the recovery steps."""

    def __init__(self, size: Size, folder: Path, stack: ExitStack, backend: str) -> None:
        self._size = size
        self._folder = folder
        self._stack = stack
        self._backend = backend
        self._figures: dict[str, Figure] = {"users": size.users, "users_agents": size.agents}
        self._proxies: list[_Node] = []
        self._users = Users(_SERVICE)

    async def run(self) -> Mapping[str, Figure]:
        """Start the fleet, run every step, end the users, and return the figures."""
        url = urlsplit(self._backend)
        cut = Forward("backend of auth-1", ("127.0.0.1", 0), addresses.parse(url.netloc.rpartition("@")[2]))
        await cut.start()
        async with aiohttp.ClientSession() as self._http, serve_echo() as service:
            try:
                await self._start(service, f"redis://:{url.password}@{addresses.join(*cut.listen)}/0")
                await self._connect_users()
                for step in (
                    lambda: self._cut_auth(cut),
                    self._advise,
                    self._close_gracefully,
                    self._replace,
                ):
                    start = time.monotonic()
                    name = await step()
                    self._figures[f"users_{name}_s"] = time.monotonic() - start
                    self._report(name)
                await self._end()
            finally:
                await cut.stop()
        return self._figures

    # Setup.

    async def _start(self, service: int, backend_of_auth_1: str) -> None:
        auths = [
            await self._start_node("auth", f"auth-{n}", "--backend", backend)
            for n, backend in ((1, backend_of_auth_1), (2, self._backend))
        ]
        self._auths = auths
        # The balancer names them before they are in use, so one could be found twice.
        ports: set[int] = set()
        while len(ports) < 2 * 2 * self._size.proxies:
            ports.add(valkey.find_free_port())
        self._ports = [(ports.pop(), ports.pop()) for _ in range(2 * self._size.proxies)]
        for n in range(self._size.proxies):
            await self._start_proxy(n, generation=1)
        balancers = [
            await self._start_balancer(
                "auths", [(auth.name, auth.ready["grpc"], auth.ready["diag"]) for auth in auths]
            ),
            await self._start_balancer(
                "proxies",
                [
                    (f"proxy-{n + 1}", f"127.0.0.1:{port}", f"127.0.0.1:{diag}")
                    for n, (port, diag) in enumerate(self._ports)
                ],
            ),
        ]
        await self._configure("tunnel_strategy.type=proxy_peering", f"agent_connection_count={_TUNNELS}")
        self._agents = await self._start_node(
            "agent",
            "agents",
            *("--count", str(self._size.agents), "--auth", balancers[0].ready["listen"]),
            *("--proxy", balancers[1].ready["listen"], "--announce-ttl", _AGENT_TTL),
            *("--service", f"{_SERVICE}=127.0.0.1:{service}", "--diag-listen", "127.0.0.1:0"),
        )
        await self._until(lambda: self._agents_have_tunnels(_TUNNELS), f"every agent has {_TUNNELS} tunnels")

    async def _start_proxy(self, number: int, generation: int) -> None:
        port, diag = self._ports[number]
        self._proxies.append(
            await self._start_node(
                "proxy",
                f"proxy-{number + 1}",
                *("--backend", self._backend, "--listen", f"127.0.0.1:{port}"),
                *("--diag-listen", f"127.0.0.1:{diag}", "--connect-listen", "127.0.0.1:0", "--drain", "15m"),
                TELEPORT_UNSTABLE_PROXYGROUP_ID="blue",
                TELEPORT_UNSTABLE_PROXYGROUP_GEN=str(generation),
            )
        )

    async def _start_balancer(self, name: str, targets: list[tuple[str, str, str]]) -> _Node:
        flags = [flag for target in targets for flag in ("--target", f"{target[0]}={target[1]},{target[2]}")]
        return await self._start_node("balancer", name, *flags, "--interval", "0.2")

    async def _start_node(self, role: str, name: str, *args: str, **variables: str) -> _Node:
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TELEPORT_UNSTABLE_AUTH_ANNOUNCE_TTL": _TTL,
            "TELEPORT_UNSTABLE_PROXY_ANNOUNCE_TTL": _TTL,
            "TELEPORT_UNSTABLE_GRPC_SERVICE_CONFIG": _POLICY,
            **variables,
        }
        name_flags = [] if role == "agent" else ["--name", name]
        argv = [sys.executable, "-m", "fleet.nodes", role, *name_flags, *args]
        peer = self._stack.enter_context(run_program(name, argv, self._folder, env=env))
        ready = await asyncio.to_thread(peer.await_output, _READY)
        return _Node(name, peer, json.loads(ready.group()))

    async def _configure(self, *settings: str) -> None:
        argv = ("fleet", "config", "set", "--auth", self._auths[1].ready["grpc"], *settings)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fleet.cli.main", *argv, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        if process.returncode:
            raise BenchError(f"refloat {' '.join(argv)}: {output.decode(errors='replace')}")

    async def _connect_users(self) -> None:
        for number in range(self._size.users):
            first = number % len(self._proxies)
            order = [*self._proxies[first:], *self._proxies[:first]]
            agent = f"agent-{number % self._size.agents + 1}"
            await self._users.connect(agent, [(proxy.name, proxy.ready["connect"]) for proxy in order])

    # Steps.

    async def _cut_auth(self, cut: Forward) -> str:
        """Cut the first auth off the backend: it becomes unhealthy, and agents move to the other auth."""
        await cut.change(mode=ForwardMode.CUT)
        await self._until(self._all_on_second_auth, "every agent heartbeats by auth-2")
        await cut.change(mode=ForwardMode.PASS)
        return "auth_failover"

    async def _all_on_second_auth(self) -> bool:
        async with grpc.aio.insecure_channel(self._auths[1].ready["grpc"]) as channel:
            answer = await fleet_pb2_grpc.AgentFeedStub(channel).ListAgents(fleet_pb2.ListAgentsRequest())
        moved_agents = [entry for entry in answer.agents if entry.auth_id == self._auths[1].ready["id"]]
        return len(moved_agents) == len(answer.agents) == self._size.agents

    async def _advise(self) -> str:
        """Advise the agents of each proxy in turn to reconnect."""
        advised_count = staying_count = 0
        for proxy in list(self._proxies):
            answer = await self._advise_one(proxy, str(uuid.uuid4()))
            advised_count += answer.advised_count
            staying_count += await self._await_departure(proxy, answer.advised_count)
            await self._until(
                lambda: self._agents_have_tunnels(_TUNNELS), "every agent has its tunnels again"
            )
        self._figures |= {"users_advised": advised_count, "users_advised_and_stayed": staying_count}
        return "advisories"

    async def _advise_one(self, proxy: _Node, advisory: str) -> fleet_pb2.AdviseReconnectResponse:
        async with grpc.aio.insecure_channel(proxy.ready["grpc"]) as channel:
            request = fleet_pb2.AdviseReconnectRequest(advisory_id=advisory, reason="the bench asks for it")
            answer: fleet_pb2.AdviseReconnectResponse = await fleet_pb2_grpc.TunnelAdminStub(
                channel
            ).AdviseReconnect(request)
            return answer

    async def _await_departure(self, proxy: _Node, advised_count: int) -> int:
        """Wait until all advised agents left the proxy or logged that they stay; return how many stay."""
        at = rf"(\S+): proxy {re.escape(proxy.ready['id'])}: "

        def agents(event: str, reason: str = "") -> set[str]:
            return set(re.findall(rf"tunnel\.{event}: {at}{reason}", self._agents.peer.output_text()))

        def all_left() -> bool:
            stay, leavers = agents("no-proxy", "the bench"), agents("advised", "the bench")
            return len(stay | leavers) >= advised_count and leavers <= agents("closing") | agents("closed")

        await self._until(all_left, f"the advised agents left {proxy.name}")
        return len(agents("no-proxy", "the bench"))

    async def _close_gracefully(self) -> str:
        """Lower the desired number of tunnels; excess ones may close after a second or two."""
        await self._configure(
            *("agent_connection_count=1", "graceful_tunnel_closing=true"),
            *("tunnel_closing_wait_min=1s", "tunnel_closing_wait_max=2s"),
        )
        pattern = r"tunnel\.closing: \S+: proxy \S+: excess"
        await self._until(
            lambda: len(re.findall(pattern, self._agents.peer.output_text())) >= self._size.agents,
            "every agent let a tunnel go",
        )
        self._figures["users_tunnels_closed_gracefully"] = len(
            re.findall(pattern, self._agents.peer.output_text())
        )
        return "graceful_closing"

    async def _replace(self) -> str:
        """Replace each proxy by one of the next generation; the old one accepts no new users and ends with its last."""
        old = list(self._proxies)
        for number in range(self._size.proxies):
            await self._start_proxy(self._size.proxies + number, generation=2)
            old[number].peer.process.terminate()
            await self._until(
                lambda: self._agents_have_tunnels(1), "every agent has a tunnel to a proxy that stays"
            )
        self._old, self._proxies = old, self._proxies[self._size.proxies :]
        await self._until(self._all_on_new_proxies, "every agent has a tunnel to a new proxy")
        before = len(self._users.all)
        for number in range(self._size.agents):
            proxies = [(proxy.name, proxy.ready["connect"]) for proxy in self._proxies]
            await self._users.connect(f"agent-{number + 1}", proxies)
        self._figures["users_connected_after_it"] = len(self._users.all) - before
        self._figures["users_old_proxies_alive"] = sum(proxy.peer.process.poll() is None for proxy in old)
        return "replacement"

    async def _all_on_new_proxies(self) -> bool:
        agent_ids = set()
        for proxy in self._proxies:
            async with grpc.aio.insecure_channel(proxy.ready["grpc"]) as channel:
                answer = await fleet_pb2_grpc.TunnelFeedStub(channel).ListTunnels(
                    fleet_pb2.ListTunnelsRequest()
                )
            agent_ids |= {tunnel.agent_id for tunnel in answer.tunnels}
        return len(agent_ids) == self._size.agents

    async def _end(self) -> None:
        """End the users, and wait for the old proxies to end with them."""
        await self._users.finish()
        start = time.monotonic()
        await self._until(
            lambda: all(proxy.peer.process.poll() is not None for proxy in self._old), "the old proxies ended"
        )
        users = self._users.all
        broken = [user for user in users if not user.is_complete]
        for user in broken[:5]:
            print(f"broken: {user.agent} by {user.proxy}: {user.failure or 'bytes differ'}", file=sys.stderr)
        self._figures |= {
            "users_mb": sum(user.sent_bytes + user.received_bytes for user in users) / 1e6,
            "users_bytes_lost": sum(max(user.missing_bytes, 0) for user in users),
            "users_broken": len(broken),
            "users_old_proxies_ended_after_s": time.monotonic() - start,
            "users_old_proxies_failed": sum(proxy.peer.process.returncode != 0 for proxy in self._old),
        }

    # Waiting.

    async def _agents_have_tunnels(self, tunnels: int) -> bool:
        """Return whether every agent has at least that many tunnels that are not closing."""
        async with self._http.get(f"http://{self._agents.ready['diag']}/metrics") as answer:
            text = await answer.text()
        rows = re.findall(r'refloat_agent_tunnels\{actual="(\d+)",desired="\d+"\} (\d+)', text)
        return sum(int(agents) for actual, agents in rows if int(actual) >= tunnels) == self._size.agents

    async def _until(self, condition: Callable[[], bool | Awaitable[bool]], description: str) -> None:
        deadline = time.monotonic() + _WAIT_TIMEOUT
        while True:
            outcome = condition()
            if outcome if isinstance(outcome, bool) else await outcome:
                return
            if time.monotonic() > deadline:
                raise BenchError(
                    f"waited {_WAIT_TIMEOUT:g} s until {description}; agents said: {self._last_words()}"
                )
            await asyncio.sleep(_CHECK_INTERVAL)

    def _last_words(self) -> str:
        return "\n".join(self._agents.peer.output_text().splitlines()[-10:])

    def _report(self, step: str) -> None:
        broken = sum(bool(user.failure) for user in self._users.all)
        print(f"users: {step} done, {broken} of {len(self._users.all)} broken", file=sys.stderr, flush=True)
