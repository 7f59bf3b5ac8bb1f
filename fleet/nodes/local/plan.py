"""What a local fleet consists of, and the command line of each of its processes. Nothing is started here."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.nodes.local import gateway as fleet_gateway
from fleet.nodes.local.forward_names import BACKEND, PORTS
from fleet.protocol.recovery import announce
from fleet.transport.tls import AUTH_NAME

#: What a forward is called before it is given a target.
_NO_TARGET = "-"
_ANY_PORT = "127.0.0.1:0"
#: Names of agents are this and a number, as the nodes have it by themselves.
AGENT_PREFIX = "agent"
#: The flag that tells an instance where others reach a port of its.
_ADVERTISE = {
    "grpc": "--advertise",
    "diag": "--advertise-diag",
    "http": "--advertise-http",
    "connect": "--connect-advertise",
}
#: How few and how many of each a fleet may have.
SIZES = {"auths": (1, 50), "proxies": (1, 200), "agents": (0, 20_000), "regions": (1, 20)}


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """How big a fleet is and how it behaves. Durations as Go spells them: `10s`."""

    auths: int = 3
    proxies: int = 4
    agents: int = 200
    #: Tunnels each agent wants; 0 means one to every proxy (agent mesh).
    connections: int = 1
    announce_ttl: str = "10s"
    agent_announce_ttl: str = "20s"
    #: Agents reach auths through the proxies.
    auth_via_proxy: bool = False
    #: Between pings on a tunnel; empty for the nodes' own default.
    keep_alive_interval: str = ""
    #: More fields of the networking config that it begins with, (key, value) as people write them.
    networking: tuple[tuple[str, str], ...] = ()
    #: The file that holds it; None leaves the auths to the defaults.
    bootstrap: Path | None = None
    #: Ports and backend connections of instances pass through a forwarder.
    faults: bool = True
    cluster: str = "default"
    agents_per_process: int = 500
    #: What each agent exposes, name=host:port.
    services: tuple[str, ...] = ()
    #: Where the keys of a fleet with mutual TLS are (fleet_keys); None for a fleet without.
    keys: Path | None = None
    #: Where each instance has its data folder; None: instances accept no policies.
    data_folder: Path | None = None
    #: Who writes the resources of proxies: `auth`, over HTTP, or `backend`, the proxies themselves.
    heartbeat_to: str = "auth"
    #: Auths and proxies run in so many regions, in turn; 1: in none.
    regions: int = 1
    #: Proxies have a listener for tunnels of version 0.1 as well; agents do not use it.
    tunnel_v01: bool = False
    #: Where the gateway of unary calls to auths listens.
    gateway_listen: str = _ANY_PORT

    @property
    def instances(self) -> list[tuple[str, str]]:
        """(role, name) of every auth and proxy."""
        auths = [("auth", f"auth-{number}") for number in range(1, self.auths + 1)]
        return auths + [("proxy", f"proxy-{number}") for number in range(1, self.proxies + 1)]

    @property
    def agent_groups(self) -> list[tuple[str, int, int]]:
        """(name of the process, number of its first agent, how many agents) of every process of agents."""
        size = self.agents_per_process
        firsts = range(1, self.agents + 1, size)
        return [
            (f"agents-{n}", first, min(size, self.agents - first + 1)) for n, first in enumerate(firsts, 1)
        ]


def forwarder(plan: FleetPlan, backend: str) -> list[str]:
    """The forwarder, with forwards for every port of an instance, which get their target later, and to the backend.

    `backend` is host:port.
    """
    argv = node("forwarder")
    for role, name in plan.instances:
        for part in PORTS[role]:
            argv += ["--forward", f"{name}/{part}={_ANY_PORT},{_NO_TARGET}"]
        argv += ["--forward", f"{name}/{BACKEND}={_ANY_PORT},{backend}"]
    return argv


def instance(
    plan: FleetPlan,
    role: str,
    name: str,
    backend: str,
    forwards: Mapping[str, str],
    password_file: Path | None = None,
) -> list[str]:
    """An auth or a proxy; it advertises its forwards, where it has some. `backend` is host:port."""
    argv = node(role, "--name", name, "--cluster", plan.cluster)
    argv += ["--backend", f"redis://{forwards.get(f'{name}/{BACKEND}', backend)}/0"]
    if password_file is not None:
        argv += ["--backend-password-file", str(password_file)]
    if plan.regions > 1:
        argv += ["--region", region(plan, name)]
    if plan.data_folder is not None:
        argv += ["--data", str(plan.data_folder / name)]
    if role == "proxy":
        argv += ["--connect-listen", _ANY_PORT, "--heartbeat-to", plan.heartbeat_to]
        if plan.tunnel_v01:
            argv += ["--tunnel-v01-listen", _ANY_PORT]
    for part in PORTS[role] if forwards else ():
        argv += [_ADVERTISE[part], forwards[f"{name}/{part}"]]
    if role == "auth" and plan.bootstrap is not None:
        argv += ["--bootstrap", str(plan.bootstrap)]
    return argv + _tls(plan, name)


def region(plan: FleetPlan, name: str) -> str:
    """`region-1` for `proxy-1`, and so on in turn."""
    return f"region-{(int(name.rpartition('-')[2]) - 1) % plan.regions + 1}"


def environment(plan: FleetPlan) -> dict[str, str]:
    """What an instance finds in its environment: policies, which what it accepts later overrides."""
    return dict.fromkeys((announce.AUTH_TTL_VARIABLE, announce.PROXY_TTL_VARIABLE), plan.announce_ttl)


def balancer(name: str, targets: Sequence[tuple[str, str, str]]) -> list[str]:
    """A balancer over (name, gRPC address, diag address)."""
    argv = node("balancer", "--name", name)
    for target, grpc, diag in targets:
        argv += ["--target", f"{target}={grpc},{diag}"]
    return argv


def gateway(plan: FleetPlan, routes: Path, auths: Sequence[str]) -> list[str]:
    """The gateway of unary calls to auths, by addresses of those."""
    argv = node("gateway", "--routes", str(routes), "--listen", plan.gateway_listen)
    argv += ["--backend", f"{fleet_gateway.AUTHS}:{fleet_gateway.PORT}={','.join(auths)}"]
    argv += ["--probe-interval", "1s"]
    if plan.keys is not None:
        tls_flags = _tls(plan, "gateway")
        argv += [*tls_flags, *(part.replace("--tls-", "--backend-tls-") for part in tls_flags)]
        argv += ["--backend-tls-server-name", AUTH_NAME]
    return argv


def agents(plan: FleetPlan, name: str, first: int, count: int, auth: str, proxy: str) -> list[str]:
    """One process of agents, which dial the two balancers. How many tunnels they want the networking config says."""
    argv = node("agent", "--first", str(first), "--count", str(count), "--cluster", plan.cluster)
    argv += ["--auth", auth, "--proxy", proxy, "--announce-ttl", plan.agent_announce_ttl]
    if plan.auth_via_proxy:
        argv += ["--auth-via", "proxy"]
    if plan.keep_alive_interval:
        # Tunnels follow the networking config; the connection that brings it cannot.
        argv += ["--auth-keep-alive-interval", plan.keep_alive_interval]
    argv += ["--diag-listen", _ANY_PORT]
    for service in plan.services:
        argv += ["--service", service]
    return argv + _tls(plan, name)


def _tls(plan: FleetPlan, name: str) -> list[str]:
    if plan.keys is None:
        return []
    keys = plan.keys
    return [
        *("--tls-ca", str(keys / "ca.crt")),
        *("--tls-cert", str(keys / f"{name}.crt"), "--tls-key", str(keys / f"{name}.key")),
    ]


def node(role: str, *flags: str) -> list[str]:
    """A node as a program."""
    return [sys.executable, "-m", "fleet.nodes", role, *flags]
