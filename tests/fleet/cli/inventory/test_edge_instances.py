"""`refloat edge-instances` and `refloat edge-instance` in the terminal."""

from __future__ import annotations

from typing import Any

from click.testing import CliRunner

from fleet.cli.inventory.edge_instances import format_edge_instance, format_edge_instances
from fleet.cli.main import main
from tests.fakes.console import TOKEN, run_console

_EDGE: dict[str, Any] = {
    "name": "gw-1",
    "address": "10.0.0.5:3000",
    "kind": "gateway",
    "state": "ok",
    "label": "OK",
    "explanation": "",
    "summary": "1 rule, 1 destination",
    "polled_at": "2026-01-02T03:04:05Z",
    "answered_at": "2026-01-02T03:04:05Z",
}
_GATEWAY: dict[str, Any] = {
    "problems": ["spec.rules: missing"],
    "unresolved_backends": ["other:1"],
    "rules": [
        {
            "name": "r/0",
            "hostnames": [],
            "matches": ["s/*"],
            "retry": "No retries.",
            "timeouts": "No timeouts.",
            "call_count": 7,
            "retry_counts": {"UNAVAILABLE": 2},
        }
    ],
    "destinations": [
        {
            "address": "10.0.0.1:1",
            "backends": ["svc:1"],
            "health": "unhealthy",
            "is_ejected": True,
            "reason": "the first probe failed",
            "error": "",
        }
    ],
}
_TUNNEL_SERVER: dict[str, Any] = {
    "client_count": 1,
    "targets": [
        {
            "name": "r:SSH",
            "is_registered": True,
            "client": "edge",
            "service": "",
            "forward": "h:1",
            "session_count": 2,
        },
        {
            "name": "clock",
            "is_registered": False,
            "client": "",
            "service": "h:2",
            "forward": "",
            "session_count": 0,
        },
        {
            "name": "lost",
            "is_registered": False,
            "client": "",
            "service": "",
            "forward": "h:3",
            "session_count": 0,
        },
        {
            "name": "x",
            "is_registered": True,
            "client": "",
            "service": "",
            "forward": "",
            "session_count": 0,
        },
    ],
}


def test_gateway() -> None:
    """Facts, problems, rules and destinations."""
    text = format_edge_instance({"edge_instance": _EDGE, "gateway": _GATEWAY, "tunnel_server": None})
    for part in (
        "instance       gw-1",
        "routes file: spec.rules: missing",
        "no address: other:1",
        "No retries. No timeouts.",
        "2 UNAVAILABLE",
        "unhealthy, ejected",
    ):
        assert part in text


def test_tunnel_server() -> None:
    """Who serves each target."""
    edge = {**_EDGE, "kind": "tunnel-server"}
    text = format_edge_instance({"edge_instance": edge, "gateway": None, "tunnel_server": _TUNNEL_SERVER})
    for part in (
        "tunnel server",
        "clients: 1",
        "edge",
        "the server: h:2",
        "not registered",
        "a client without",
    ):
        assert part in text


def test_list() -> None:
    """One line each; without any, how to add one."""
    assert "1 rule, 1 destination" in format_edge_instances({"edge_instances": [_EDGE]})
    text = format_edge_instances({"edge_instances": [{**_EDGE, "kind": "", "answered_at": None}]})
    assert "unknown" in text
    assert "never" in text
    assert "--edge-instances" in format_edge_instances({"edge_instances": []})


def test_commands_ask_the_console() -> None:
    """The list, and one by its name."""
    response = {"edge_instance": _EDGE, "gateway": _GATEWAY, "tunnel_server": None}
    with run_console() as console:
        console.responses = {
            "/api/v1/edge-instances": (200, {"edge_instances": [_EDGE]}),
            "/api/v1/edge-instances/gw%201": (200, response),
        }
        runner = CliRunner(env={"REFLOAT_URL": console.url, "REFLOAT_TOKEN": TOKEN})
        assert "gw-1" in runner.invoke(main, ["edge-instances"]).output
        assert "r/0" in runner.invoke(main, ["edge-instance", "gw 1"]).output
