"""`refloat summary`, `agents`, `agent`, `instances`: what a console sees, in the terminal."""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

import click

from fleet.cli import api
from fleet.cli.answers import json_option, prints, show_json, table
from fleet.cli.home import cluster_option, home_option
from fleet.nodes.shared.options import Command, combined
from fleet.vocabulary.verdicts import State

_options = combined(
    click.option(
        "--url",
        envvar="REFLOAT_URL",
        help="Address of the console. [env: REFLOAT_URL; default: the demo's]",
    ),
    click.option(
        "--token", envvar="REFLOAT_TOKEN", help="Bearer token. [env: REFLOAT_TOKEN; default: the demo's]"
    ),
    cluster_option,
    home_option,
)


def asks_console(command: Command) -> Command:
    """Add the flags that say which console, and hand the command a `console`."""

    @wraps(command)
    def run(url: str | None, token: str | None, home: Path, **given: Any) -> None:
        command(api.find(url, token, home), **given)

    return _options(run)


def _counts(said: dict[str, Any]) -> str:
    rows = [(state.label, str(said["counts"].get(state.slug, 0))) for state in State]
    return f"{table(('state', 'agents'), rows)}\n{age(said)}"


@click.command()
@asks_console
@prints(_counts)
def summary(console: api.Console, cluster: str) -> Any:
    """Count the agents by state."""
    return console.get("/fleet/summary", cluster=cluster)


def _agents(found: list[dict[str, Any]]) -> str:
    rows = [
        (item["name"], word(item["state"]), mode_of(item), proxies_of(item), item["sentence"])
        for item in found
    ]
    return table(("name", "state", "reconnect mode", "proxies", "why"), rows)


@click.command()
@asks_console
@click.option(
    "--state", "states", multiple=True, metavar="STATE", help="Only in this state; -healthy: all but; repeat."
)
@click.option(
    "--search", metavar="WORDS", default="", help="Only agents that match, as on the console's page."
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="This many at most."
)
@prints(_agents)
def agents(console: api.Console, cluster: str, states: tuple[str, ...], search: str, limit: int) -> Any:
    """List agents with their verdicts."""
    return list(console.agents({"state": states, "q": search}, cluster=cluster, limit=limit))


def _facts(said: dict[str, Any]) -> str:
    facts = {
        "agent": f"{said['name']} ({said['id']})",
        "state": word(said["state"]),
        "since": said["since"] or "",
        "why": said["sentence"],
        "cause": said["cause"],
        "recovers": _recovery(said),
        "auth": names([said["auth"]] if said["auth"] else []),
        "mode": mode_of(said),
        "tunnels": proxies_of(said),
        "home": names([said["home"]] if said["home"] else []),
        "heartbeat": said["heartbeat_at"] or "",
        "expires": said["expires_at"] or "",
    }
    width = max(map(len, facts))
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in facts.items() if value)


@click.command()
@click.argument("agent_id", metavar="ID|NAME")
@asks_console
@prints(_facts)
def agent(console: api.Console, cluster: str, agent_id: str) -> Any:
    """Explain one agent: its verdict and all it rests on."""
    return console.of_agent(
        agent_id, lambda found: console.get(f"/agents/{found}", cluster=cluster), cluster=cluster
    )


@click.command()
@asks_console
@json_option
def instances(console: api.Console, cluster: str, as_json: bool) -> None:
    """List auths and proxies with their states.

    The agents of an auth are those whose heartbeats it wrote: those that `refloat reconnect --auth NAME` moves to other
    auths. The agents of a proxy are those with a tunnel to it.
    """
    said = console.get("/instances", cluster=cluster)
    if as_json:
        show_json(said["instances"])
        return
    click.echo(instance_table(said["instances"]))
    click.echo(age(said))


def instance_table(found: list[dict[str, Any]]) -> str:
    """Lay out auths and proxies."""
    rows = [
        (
            item["name"],
            word(item["state"]),
            item["address"],
            str(item["agents"]),
            generation_of(item),
            _draining(item),
            item["sentence"],
        )
        for item in found
    ]
    return table(("name", "state", "address", "agents", "generation", "draining", "why"), rows)


def word(slug: str) -> str:
    """A state as people say it."""
    return slug.replace("_", " ")


def names(instances: list[dict[str, str]]) -> str:
    """Instances by name."""
    return ", ".join(one["name"] for one in instances)


def mode_of(agent: dict[str, Any]) -> str:
    """Return the policy of an agent's auth connection, `reconnect, health check`; empty when it is not known."""
    if agent["mode"] == "unknown":
        return ""
    return f"{agent['mode']}, health check" if agent["health_check"] else str(agent["mode"])


def generation_of(proxy: dict[str, Any]) -> str:
    """Return group and generation of a proxy; empty when it states none."""
    stated = proxy["group"] or proxy["generation"]
    return f"{proxy['group']} {proxy['generation']}".strip() if stated else ""


def proxies_of(agent: dict[str, Any]) -> str:
    """Return the proxies of an agent's tunnels by name, each with its generation where it states one."""
    words = ((proxy["name"], generation_of(proxy)) for proxy in agent["proxies"])
    return ", ".join(f"{name} ({generation})" if generation else name for name, generation in words)


def _draining(instance: dict[str, Any]) -> str:
    draining = instance["draining"]
    return "" if draining is None else draining["reason"] or "yes"


def age(said: dict[str, Any]) -> str:
    """How old an answer is."""
    if said["age_ms"] is None:
        return "nothing was polled yet"
    seconds = f"as of {said['age_ms'] / 1000:.1f} s ago"
    return f"{seconds}: STALE, all is unknown" if said["stale"] else seconds


def _recovery(said: dict[str, Any]) -> str:
    at = said["recovers_at"]
    recovery = word(said["recovery"].replace("-", "_"))
    return f"{recovery}, at {at}" if at else recovery
