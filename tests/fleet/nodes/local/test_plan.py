"""The processes of a local fleet and their command lines."""

from __future__ import annotations

import itertools
from pathlib import Path

from fleet.nodes.local import plan as fleet_plan
from fleet.nodes.local.forward_names import BACKEND, PORTS
from fleet.nodes.local.plan import FleetPlan


def flag_value(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_agent_groups_cover_every_agent_once() -> None:
    """The last group has the remaining agents."""
    groups = FleetPlan(agents=501, agents_per_process=250).agent_groups
    assert groups == [("agents-1", 1, 250), ("agents-2", 251, 250), ("agents-3", 501, 1)]
    assert FleetPlan(agents=0).agent_groups == []


def test_forwarder_has_forwards_for_every_port() -> None:
    """Ports get their target later; the backend's address is known from the start."""
    argv = fleet_plan.make_forwarder_argv(FleetPlan(auths=1, proxies=1), "127.0.0.1:5")
    forwards = [text for flag, text in itertools.pairwise(argv) if flag == "--forward"]
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
    """With a forwarder, an instance advertises the forwards and reaches the backend through one."""
    parts = (*PORTS["proxy"], BACKEND)
    forwards = {f"proxy-1/{part}": f"127.0.0.1:{n}" for n, part in enumerate(parts, 1)}
    argv = fleet_plan.make_instance_argv(FleetPlan(), "proxy", "proxy-1", "127.0.0.1:9", forwards)
    assert flag_value(argv, "--advertise") == "127.0.0.1:1"
    assert flag_value(argv, "--advertise-diag") == "127.0.0.1:2"
    assert flag_value(argv, "--connect-advertise") == "127.0.0.1:3"
    assert flag_value(argv, "--backend") == "redis://127.0.0.1:4/0"
    forwards = {f"auth-1/{part}": f"127.0.0.1:{n}" for n, part in enumerate(PORTS["auth"], 1)}
    auth = fleet_plan.make_instance_argv(FleetPlan(), "auth", "auth-1", "127.0.0.1:9", forwards)
    assert flag_value(auth, "--advertise-http") == "127.0.0.1:3"


def test_proxies_send_heartbeats_to_auths_by_default() -> None:
    """The plan can choose the backend instead."""
    argv = fleet_plan.make_instance_argv(FleetPlan(), "proxy", "proxy-1", "127.0.0.1:9", {})
    assert flag_value(argv, "--heartbeat-to") == "auth"
    argv = fleet_plan.make_instance_argv(
        FleetPlan(heartbeat_to="backend"), "proxy", "proxy-1", "127.0.0.1:9", {}
    )
    assert flag_value(argv, "--heartbeat-to") == "backend"
    assert "--heartbeat-to" not in fleet_plan.make_instance_argv(
        FleetPlan(), "auth", "auth-1", "127.0.0.1:9", {}
    )


def test_instance_without_forwarder_advertises_its_own_ports() -> None:
    """The instance connects to the backend directly."""
    argv = fleet_plan.make_instance_argv(
        FleetPlan(has_forwarder=False), "proxy", "proxy-1", "127.0.0.1:9", {}
    )
    assert "--advertise" not in argv
    assert flag_value(argv, "--backend") == "redis://127.0.0.1:9/0"


def test_instances_are_distributed_over_regions() -> None:
    """Auths and proxies take turns; a fleet with one region has no region flag."""
    plan = FleetPlan(auths=3, proxies=2, regions=2)
    argvs = [
        fleet_plan.make_instance_argv(plan, role, name, "127.0.0.1:9", {}) for role, name in plan.instances
    ]
    assert [flag_value(argv, "--region")[-1] for argv in argvs] == ["1", "2", "1", "1", "2"]
    assert "--region" not in fleet_plan.make_instance_argv(FleetPlan(), "auth", "auth-1", "127.0.0.1:9", {})


def test_agents_expose_services() -> None:
    """The services are the plan's; agents replace `{n}` by their numbers."""
    plan = FleetPlan(services=("web=127.0.0.1:{n}", "x=10.0.0.{n}:1"))
    argv = fleet_plan.make_agents_argv(plan, "agents-1", 1, 5, "a:1", "p:1")
    services = [text for flag, text in itertools.pairwise(argv) if flag == "--service"]
    assert services == list(plan.services)


def test_agents_report_labels_and_versions() -> None:
    """Both keep their order, which agents use in turn."""
    plan = FleetPlan(labels=(("env", "prod"), ("env", "dev")), reported_versions=("2", "1"))
    argv = fleet_plan.make_agents_argv(plan, "agents-1", 1, 5, "a:1", "p:1")
    pairs = list(itertools.pairwise(argv))
    assert [text for flag, text in pairs if flag == "--label"] == ["env=prod", "env=dev"]
    assert [text for flag, text in pairs if flag == "--report-version"] == ["2", "1"]


def test_gateway_has_certificates_for_callers_and_auths() -> None:
    """The server name of auths differs from the name in the routes."""
    plain_arguments = fleet_plan.make_gateway_argv(FleetPlan(), Path("r.yaml"), ["a:1", "b:2"])
    secure_arguments = fleet_plan.make_gateway_argv(
        FleetPlan(keys_folder=Path("keys")), Path("r.yaml"), ["a:1"]
    )

    assert plain_arguments[3:] == [
        *("gateway", "--routes", "r.yaml", "--listen", "127.0.0.1:0"),
        *("--backend", "auths:3025=a:1,b:2", "--probe-interval", "1s"),
    ]
    for flag in ("--tls-cert", "--backend-tls-cert"):
        assert secure_arguments[secure_arguments.index(flag) + 1] == "keys/gateway.crt"
    assert secure_arguments[-2:] == ["--backend-tls-server-name", "auth.refloat.local"]


def test_agents_expect_names_by_role() -> None:
    """No flag overrides the default server names of auths and proxies."""
    agents = fleet_plan.make_agents_argv(FleetPlan(keys_folder=Path("keys")), "agents-1", 1, 1, "a:1", "p:1")

    assert "--tls-ca" in agents
    assert not [argument for argument in agents if argument.endswith("-name")]


def test_tunnel_settings_are_in_the_bootstrap_config_only() -> None:
    """Flags of agents and proxies would override later changes of the networking config."""
    plan = FleetPlan(connections=2, keep_alive_interval="1s", bootstrap_file=Path("/x/networking.yaml"))
    auth = fleet_plan.make_instance_argv(plan, "auth", "auth-1", "b:1", {})
    assert flag_value(auth, "--bootstrap") == "/x/networking.yaml"
    arguments = fleet_plan.make_agents_argv(plan, "agents-2", 6, 5, "a:1", "p:1")
    arguments += fleet_plan.make_instance_argv(plan, "proxy", "proxy-1", "b:1", {})
    assert flag_value(arguments, "--first") == "6"
    assert not {"--connections", "--mesh", "--keep-alive-interval", "--bootstrap"} & set(arguments)
    assert flag_value(arguments, "--auth-keep-alive-interval") == "1s"


def test_backend_password_is_passed_as_a_file() -> None:
    """No command line contains the password."""
    argv = fleet_plan.make_instance_argv(FleetPlan(), "auth", "auth-1", "b:1", {}, Path("backend/password"))
    assert flag_value(argv, "--backend") == "redis://b:1/0"
    assert flag_value(argv, "--backend-password-file") == "backend/password"


def test_proxies_have_a_listener_for_version_0_1_on_request() -> None:
    """Only proxies have the listener, and only if the plan requests it."""
    old = fleet_plan.make_instance_argv(FleetPlan(tunnel_v01=True), "proxy", "proxy-1", "127.0.0.1:9", {})
    assert flag_value(old, "--tunnel-v01-listen") == "127.0.0.1:0"
    for plan, role in ((FleetPlan(), "proxy"), (FleetPlan(tunnel_v01=True), "auth")):
        assert "--tunnel-v01-listen" not in fleet_plan.make_instance_argv(plan, role, "x", "127.0.0.1:9", {})
