"""What a fleet consists of, and its command lines."""

from __future__ import annotations

import itertools
from pathlib import Path

from fleet.nodes.local import plan as fleet_plan
from fleet.nodes.local.forward_names import BACKEND, PORTS
from fleet.nodes.local.plan import FleetPlan


def flag(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_agent_groups_cover_every_agent_once() -> None:
    """The last group is as big as what is left."""
    groups = FleetPlan(agents=501, agents_per_process=250).agent_groups
    assert groups == [("agents-1", 1, 250), ("agents-2", 251, 250), ("agents-3", 501, 1)]
    assert FleetPlan(agents=0).agent_groups == []


def test_forwarder_has_forwards_for_every_port() -> None:
    """Ports get their target later, the backend is known."""
    argv = fleet_plan.forwarder(FleetPlan(auths=1, proxies=1), "127.0.0.1:5")
    forwards = [text for before, text in itertools.pairwise(argv) if before == "--forward"]
    assert forwards == [
        "auth-1/grpc=127.0.0.1:0,-",
        "auth-1/diag=127.0.0.1:0,-",
        "auth-1/http=127.0.0.1:0,-",
        "auth-1/backend=127.0.0.1:0,127.0.0.1:5",
        "proxy-1/grpc=127.0.0.1:0,-",
        "proxy-1/diag=127.0.0.1:0,-",
        "proxy-1/connect=127.0.0.1:0,-",
        "proxy-1/backend=127.0.0.1:0,127.0.0.1:5",
    ]


def test_instance_advertises_its_forwards() -> None:
    """Behind a forwarder, others are told the forwards, and the backend is reached through one."""
    parts = (*PORTS["proxy"], BACKEND)
    forwards = {f"proxy-1/{part}": f"127.0.0.1:{n}" for n, part in enumerate(parts, 1)}
    argv = fleet_plan.instance(FleetPlan(), "proxy", "proxy-1", "127.0.0.1:9", forwards)
    assert flag(argv, "--advertise") == "127.0.0.1:1"
    assert flag(argv, "--advertise-diag") == "127.0.0.1:2"
    assert flag(argv, "--connect-advertise") == "127.0.0.1:3"
    assert flag(argv, "--backend") == "redis://127.0.0.1:4/0"
    forwards = {f"auth-1/{part}": f"127.0.0.1:{n}" for n, part in enumerate(PORTS["auth"], 1)}
    auth = fleet_plan.instance(FleetPlan(), "auth", "auth-1", "127.0.0.1:9", forwards)
    assert flag(auth, "--advertise-http") == "127.0.0.1:3"


def test_proxies_heartbeat_through_auths() -> None:
    """Unless the fleet is told otherwise."""
    argv = fleet_plan.instance(FleetPlan(), "proxy", "proxy-1", "127.0.0.1:9", {})
    assert flag(argv, "--heartbeat-to") == "auth"
    argv = fleet_plan.instance(FleetPlan(heartbeat_to="backend"), "proxy", "proxy-1", "127.0.0.1:9", {})
    assert flag(argv, "--heartbeat-to") == "backend"
    assert "--heartbeat-to" not in fleet_plan.instance(FleetPlan(), "auth", "auth-1", "127.0.0.1:9", {})


def test_instance_without_forwarder_is_itself() -> None:
    """It advertises its own ports and reaches the backend directly."""
    argv = fleet_plan.instance(FleetPlan(faults=False), "proxy", "proxy-1", "127.0.0.1:9", {})
    assert "--advertise" not in argv
    assert flag(argv, "--backend") == "redis://127.0.0.1:9/0"


def test_instances_are_spread_over_regions() -> None:
    """In turn, auths as well as proxies; a fleet in one place says nothing of it."""
    plan = FleetPlan(auths=3, proxies=2, regions=2)
    argvs = [fleet_plan.instance(plan, role, name, "127.0.0.1:9", {}) for role, name in plan.instances]
    assert [flag(argv, "--region")[-1] for argv in argvs] == ["1", "2", "1", "1", "2"]
    assert "--region" not in fleet_plan.instance(FleetPlan(), "auth", "auth-1", "127.0.0.1:9", {})


def test_agents_expose_services() -> None:
    """As they are given; the agents put their numbers in."""
    plan = FleetPlan(services=("web=127.0.0.1:{n}", "x=10.0.0.{n}:1"))
    argv = fleet_plan.agents(plan, "agents-1", 1, 5, "a:1", "p:1")
    exposed = [text for before, text in itertools.pairwise(argv) if before == "--service"]
    assert exposed == list(plan.services)


def test_gateway_shows_a_certificate_both_ways() -> None:
    """To callers and to auths; whose names are not those of the routes."""
    plain = fleet_plan.gateway(FleetPlan(), Path("r.yaml"), ["a:1", "b:2"])
    secure = fleet_plan.gateway(FleetPlan(keys=Path("keys")), Path("r.yaml"), ["a:1"])

    assert plain[3:] == [
        *("gateway", "--routes", "r.yaml", "--listen", "127.0.0.1:0"),
        *("--backend", "auths:3025=a:1,b:2", "--probe-interval", "1s"),
    ]
    for flag in ("--tls-cert", "--backend-tls-cert"):
        assert secure[secure.index(flag) + 1] == "keys/gateway.crt"
    assert secure[-2:] == ["--backend-tls-server-name", "auth.refloat.local"]


def test_agents_expect_names_by_role() -> None:
    """No flag overrides the names that agents expect of auths and of proxies by default."""
    agents = fleet_plan.agents(FleetPlan(keys=Path("keys")), "agents-1", 1, 1, "a:1", "p:1")

    assert "--tls-ca" in agents
    assert not [word for word in agents if word.endswith("-name")]


def test_tunnels_are_for_the_networking_config_to_say() -> None:
    """Auths are given the config that the fleet begins with; a flag on a node would win over later changes."""
    plan = FleetPlan(connections=2, keep_alive_interval="1s", bootstrap=Path("/x/networking.yaml"))
    auth = fleet_plan.instance(plan, "auth", "auth-1", "b:1", {})
    assert flag(auth, "--bootstrap") == "/x/networking.yaml"
    others = fleet_plan.agents(plan, "agents-2", 6, 5, "a:1", "p:1")
    others += fleet_plan.instance(plan, "proxy", "proxy-1", "b:1", {})
    assert flag(others, "--first") == "6"
    assert not {"--connections", "--mesh", "--keep-alive-interval", "--bootstrap"} & set(others)
    assert flag(others, "--auth-keep-alive-interval") == "1s"


def test_password_of_the_backend_is_in_no_command_line() -> None:
    """Instances are given its file."""
    argv = fleet_plan.instance(FleetPlan(), "auth", "auth-1", "b:1", {}, Path("backend/password"))
    assert flag(argv, "--backend") == "redis://b:1/0"
    assert flag(argv, "--backend-password-file") == "backend/password"


def test_proxies_have_a_listener_for_version_0_1_on_request() -> None:
    """Proxies alone, and only with the flag."""
    old = fleet_plan.instance(FleetPlan(tunnel_v01=True), "proxy", "proxy-1", "127.0.0.1:9", {})
    assert flag(old, "--tunnel-v01-listen") == "127.0.0.1:0"
    for plan, role in ((FleetPlan(), "proxy"), (FleetPlan(tunnel_v01=True), "auth")):
        assert "--tunnel-v01-listen" not in fleet_plan.instance(plan, role, "x", "127.0.0.1:9", {})
