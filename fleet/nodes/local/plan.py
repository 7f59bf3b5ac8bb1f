"""The size of a local fleet, and the command line of each of its processes. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.nodes.local import gateway as fleet_gateway
from fleet.nodes.local.forward_names import BACKEND, PORTS
from fleet.protocol.recovery import announce
from fleet.transport.tls import AUTH_SERVER_NAME

#: The destination of a forward that is set later.
_NO_TARGET = "-"
_ANY_PORT = "127.0.0.1:0"
#: Prefix of agent names, before a number; the default of the nodes.
AGENT_PREFIX = "agent"
#: The flag that sets the advertised address of a port of an instance.
_ADVERTISE = {
    "grpc": "--advertise",
    "diag": "--advertise-diag",
    "http": "--advertise-http",
    "connect": "--connect-advertise",
}
#: Minimum and maximum sizes of a fleet.
SIZE_LIMITS = {"auths": (1, 50), "proxies": (1, 200), "agents": (0, 20_000), "regions": (1, 20)}


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Size and settings of a local fleet. Durations are Go durations: `10s`."""

    auths: int = 3
    proxies: int = 4
    agents: int = 200
    #: Desired tunnels per agent; 0 means one to every proxy (agent mesh).
    connections: int = 1
    announce_ttl: str = "10s"
    agent_announce_ttl: str = "20s"
    #: Agents reach auths through the proxies.
    auth_via_proxy: bool = False
    #: Time between two pings on a tunnel; empty for the default of the nodes.
    keep_alive_interval: str = ""
    #: More fields of the initial networking config: (key, value) as text.
    networking: tuple[tuple[str, str], ...] = ()
    #: The file of the initial networking config; None: auths use the defaults.
    bootstrap_file: Path | None = None
    #: Ports and backend connections of instances pass through a forwarder.
    has_forwarder: bool = True
    cluster: str = "default"
    agents_per_process: int = 500
    #: Services that each agent exposes, name=host:port.
    services: tuple[str, ...] = ()
    #: Labels of agents, and versions that they report instead of their own; several values in turn.
    labels: tuple[tuple[str, str], ...] = ()
    reported_versions: tuple[str, ...] = ()
    #: Folder of the keys of a fleet with mutual TLS; None for a fleet without TLS.
    keys_folder: Path | None = None
    #: Folder that holds the data folders of instances; None: instances accept no policies.
    data_folder: Path | None = None
    #: Where proxies send heartbeats: `auth` (over HTTP) or `backend` (directly).
    heartbeat_to: str = "auth"
    #: Number of regions over which auths and proxies are spread in turn; 1: no regions.
    regions: int = 1
    #: Proxies also listen for tunnels of version 0.1; agents do not use it.
    tunnel_v01: bool = False
    #: Listen address of the gateway for unary calls to auths.
    gateway_listen: str = _ANY_PORT

    @property
    def instances(self) -> list[tuple[str, str]]:
        """Return (role, name) of every auth and proxy."""
        auths = [("auth", f"auth-{number}") for number in range(1, self.auths + 1)]
        return auths + [("proxy", f"proxy-{number}") for number in range(1, self.proxies + 1)]

    @property
    def agent_groups(self) -> list[tuple[str, int, int]]:
        """Return (name, number of its first agent, number of agents) of every agent process."""
        size = self.agents_per_process
        firsts = range(1, self.agents + 1, size)
        return [
            (f"agents-{n}", first, min(size, self.agents - first + 1)) for n, first in enumerate(firsts, 1)
        ]


def make_forwarder_argv(plan: FleetPlan, backend: str) -> list[str]:
    """Return the command line of the forwarder, with a forward per port of each instance, and one to the backend.

    `backend` is host:port. Forwards to instances get their destination later.
    """
    argv = make_node_argv("forwarder")
    for role, name in plan.instances:
        for part in PORTS[role]:
            argv += ["--forward", f"{name}/{part}={_ANY_PORT},{_NO_TARGET}"]
        argv += ["--forward", f"{name}/{BACKEND}={_ANY_PORT},{backend}"]
    return argv


def make_instance_argv(
    plan: FleetPlan,
    role: str,
    name: str,
    backend: str,
    forwards: Mapping[str, str],
    password_file: Path | None = None,
) -> list[str]:
    """Return the command line of an auth or a proxy, which advertises its forwards, if any. `backend` is host:port."""
    argv = make_node_argv(role, "--name", name, "--cluster", plan.cluster)
    argv += ["--backend", f"redis://{forwards.get(f'{name}/{BACKEND}', backend)}/0"]
    if password_file is not None:
        argv += ["--backend-password-file", str(password_file)]
    if plan.regions > 1:
        argv += ["--region", region_of(plan, name)]
    if plan.data_folder is not None:
        argv += ["--data", str(plan.data_folder / name)]
    if role == "proxy":
        argv += ["--connect-listen", _ANY_PORT, "--heartbeat-to", plan.heartbeat_to]
        if plan.tunnel_v01:
            argv += ["--tunnel-v01-listen", _ANY_PORT]
    for part in PORTS[role] if forwards else ():
        argv += [_ADVERTISE[part], forwards[f"{name}/{part}"]]
    if role == "auth" and plan.bootstrap_file is not None:
        argv += ["--bootstrap", str(plan.bootstrap_file)]
    return argv + _tls_flags(plan, name)


def region_of(plan: FleetPlan, name: str) -> str:
    """Return the region of an instance: `region-1` for `proxy-1`, and so on in turn."""
    return f"region-{(int(name.rpartition('-')[2]) - 1) % plan.regions + 1}"


def make_environment(plan: FleetPlan) -> dict[str, str]:
    """Return the environment of an instance: policies, which policies from the console override."""
    return dict.fromkeys((announce.AUTH_TTL_VARIABLE, announce.PROXY_TTL_VARIABLE), plan.announce_ttl)


def make_balancer_argv(name: str, targets: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return the command line of a balancer over targets (name, gRPC address, diag address)."""
    argv = make_node_argv("balancer", "--name", name)
    for target, grpc, diag in targets:
        argv += ["--target", f"{target}={grpc},{diag}"]
    return argv


def make_gateway_argv(plan: FleetPlan, routes: Path, auths: Sequence[str]) -> list[str]:
    """Return the command line of the gateway for unary calls to `auths`, their addresses."""
    argv = make_node_argv("gateway", "--routes", str(routes), "--listen", plan.gateway_listen)
    argv += ["--backend", f"{fleet_gateway.AUTHS_BACKEND}:{fleet_gateway.AUTHS_PORT}={','.join(auths)}"]
    argv += ["--probe-interval", "1s"]
    if plan.keys_folder is not None:
        tls_flags = _tls_flags(plan, "gateway")
        argv += [*tls_flags, *(part.replace("--tls-", "--backend-tls-") for part in tls_flags)]
        argv += ["--backend-tls-server-name", AUTH_SERVER_NAME]
    return argv


def make_agents_argv(plan: FleetPlan, name: str, first: int, count: int, auth: str, proxy: str) -> list[str]:
    """Return the command line of an agent process. Its agents dial the two balancers, `auth` and `proxy`."""
    argv = make_node_argv("agent", "--first", str(first), "--count", str(count), "--cluster", plan.cluster)
    argv += ["--auth", auth, "--proxy", proxy, "--announce-ttl", plan.agent_announce_ttl]
    if plan.auth_via_proxy:
        argv += ["--auth-via", "proxy"]
    if plan.keep_alive_interval:
        # Tunnels follow the networking config. The auth connection, which delivers the config, needs a flag.
        argv += ["--auth-keep-alive-interval", plan.keep_alive_interval]
    argv += ["--diag-listen", _ANY_PORT]
    for service in plan.services:
        argv += ["--service", service]
    for key, label_value in plan.labels:
        argv += ["--label", f"{key}={label_value}"]
    for version in plan.reported_versions:
        argv += ["--report-version", version]
    return argv + _tls_flags(plan, name)


def _tls_flags(plan: FleetPlan, name: str) -> list[str]:
    if plan.keys_folder is None:
        return []
    keys_folder = plan.keys_folder
    return [
        *("--tls-ca", str(keys_folder / "ca.crt")),
        *("--tls-cert", str(keys_folder / f"{name}.crt"), "--tls-key", str(keys_folder / f"{name}.key")),
    ]


def make_node_argv(role: str, *flags: str) -> list[str]:
    """Return the command line of a node."""
    return [sys.executable, "-m", "fleet.nodes", role, *flags]
