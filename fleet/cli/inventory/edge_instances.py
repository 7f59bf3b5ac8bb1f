"""`refloat edge-instances` and `refloat edge-instance`: gateways and tunnel servers, as their pages show them."""

from __future__ import annotations

import urllib.parse
from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options
from fleet.cli.output import format_table, format_time, prints_response


def format_edge_instances(response: dict[str, Any]) -> str:
    """Return a table of gateways and tunnel servers."""
    rows = [
        (
            edge["name"],
            format_kind(edge),
            edge["label"],
            edge["address"],
            format_time(edge["answered_at"]) if edge["answered_at"] else "never",
            edge["summary"],
            edge["explanation"],
        )
        for edge in response["edge_instances"]
    ]
    if not rows:
        return "no gateways and tunnel servers; add them with `refloat cluster edit CLUSTER --edge-instances`"
    return format_table(("name", "kind", "state", "address", "last response", "report", "reason"), rows)


def format_kind(edge: dict[str, Any]) -> str:
    """Return the kind of an edge instance in words."""
    return edge["kind"].replace("-", " ") or "unknown"


def format_edge_instance(response: dict[str, Any]) -> str:
    """Return a gateway or tunnel server as text: facts, then what it reported last."""
    edge = response["edge_instance"]
    facts = {
        "instance": edge["name"],
        "kind": format_kind(edge),
        "state": edge["label"],
        "reason": edge["explanation"],
        "address": edge["address"],
        "last poll": format_time(edge["polled_at"]) if edge["polled_at"] else "never",
        "last response": format_time(edge["answered_at"]) if edge["answered_at"] else "never",
    }
    width = max(map(len, facts))
    lines = [f"{name.ljust(width)}  {text}" for name, text in facts.items() if text]
    if response["gateway"] is not None:
        lines += _format_gateway(response["gateway"])
    if response["tunnel_server"] is not None:
        lines += _format_tunnel_server(response["tunnel_server"])
    return "\n".join(lines)


def _format_gateway(gateway: dict[str, Any]) -> list[str]:
    lines = [f"routes file: {problem}" for problem in gateway["problems"]]
    lines += [f"no address: {backend}" for backend in gateway["unresolved_backends"]]
    rules = []
    for rule in gateway["rules"]:
        counts = ", ".join(f"{count} {status}" for status, count in rule["retry_counts"].items())
        rules.append(
            (
                rule["name"],
                ", ".join(rule["hostnames"]) or "any",
                ", ".join(rule["matches"]) or "any",
                str(rule["call_count"]),
                counts or "none",
                f"{rule['retry']} {rule['timeouts']}",
            )
        )
    destinations = [
        (
            destination["address"],
            ", ".join(destination["backends"]),
            f"{destination['health']}{', ejected' if destination['is_ejected'] else ''}",
            destination["error"] or destination["reason"],
        )
        for destination in gateway["destinations"]
    ]
    return [
        *(["", *lines] if lines else []),
        "",
        format_table(("rule", "hosts", "methods", "calls", "retried", "retries and timeouts"), rules),
        "",
        format_table(("destination", "backends", "health", "reason"), destinations),
    ]


def _format_tunnel_server(tunnel_server: dict[str, Any]) -> list[str]:
    rows = [
        (
            target["name"],
            _format_server(target),
            target["forward"] or "none",
            str(target["session_count"]),
        )
        for target in tunnel_server["targets"]
    ]
    return [
        f"clients: {tunnel_server['client_count']}",
        "",
        format_table(("target", "served by", "local port", "sessions"), rows),
    ]


def _format_server(target: dict[str, Any]) -> str:
    if target["is_registered"]:
        return target["client"] or "a client without a name"
    return f"the server: {target['service']}" if target["service"] else "not registered"


@click.command()
@console_options
@prints_response(format_edge_instances)
def edge_instances(console: api.ConsoleClient, cluster: str) -> Any:
    """List gateways and tunnel servers with their states."""
    return console.get("/edge-instances", cluster=cluster)


@click.command()
@click.argument("name")
@console_options
@prints_response(format_edge_instance)
def edge_instance(console: api.ConsoleClient, cluster: str, name: str) -> Any:
    """Show a gateway (routes, retries, destinations) or a tunnel server (targets, sessions)."""
    return console.get(f"/edge-instances/{urllib.parse.quote(name, safe='')}", cluster=cluster)
