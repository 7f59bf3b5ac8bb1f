"""`refloat summary`, `agents`, `agent`, `instances`: the state of the fleet, as a console sees it."""

from __future__ import annotations

from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any

import click

from fleet.alerts.wording.words import describe_remaining
from fleet.cli import api
from fleet.cli.home import cluster_option, home_option
from fleet.cli.output import format_table, format_time, json_option, print_json, prints_response
from fleet.nodes.shared.options import Command, combine
from fleet.vocabulary.instances import InstanceKind, InstanceState
from fleet.vocabulary.verdicts import STATES_BY_URGENCY, State

_console_flags = combine(
    click.option(
        "--url",
        envvar="REFLOAT_URL",
        help="URL of the console. [env: REFLOAT_URL; default: the demo]",
    ),
    click.option(
        "--token", envvar="REFLOAT_TOKEN", help="API token. [env: REFLOAT_TOKEN; default: the demo's token]"
    ),
    cluster_option,
    home_option,
)


_AGENT_STATE_LABELS = {state.slug: state.label for state in State}
_INSTANCE_STATE_LABELS = {"ok": "OK", "silent": "not responding", "gone": "deregistered"}
_STATES_WITH_OLD_COUNTS = {state.slug for state in InstanceState if not state.has_current_counts}
_RECOVERY_LABELS = {
    "not-needed": "not needed",
    "by-itself": "automatic",
    "only-if-cause-recovers": "when the cause recovers",
    "unclear": "unknown",
}
#: States as `--state` takes them, each with its label where that is another word.
_STATES_HELP_TEXT = ", ".join(
    state.slug if state.label == state.slug.replace("_", " ") else f"{state.slug} ({state.label})"
    for state in STATES_BY_URGENCY
)


def console_options(command: Command) -> Command:
    """Add the flags that select a console; the command gets a `console`."""

    @wraps(command)
    def run(url: str | None, token: str | None, home: Path, **command_options: Any) -> None:
        command(api.find_console(url, token, home), **command_options)

    return _console_flags(run)


def _format_counts(response: dict[str, Any], console_url: str) -> str:
    rows = [(state.label, str(response["counts"].get(state.slug, 0))) for state in State]
    return "\n".join(
        [
            *format_headline(response.get("headline"), response.get("as_of"), console_url),
            format_table(("state", "agents"), rows),
            format_age(response),
        ]
    )


@click.command()
@console_options
@json_option
def summary(console: api.ConsoleClient, cluster: str, as_json: bool) -> None:
    """Show what is wrong, what helps, and the number of agents in each state."""
    response = console.get("/fleet/summary", cluster=cluster)
    print_json(response) if as_json else click.echo(_format_counts(response, console.url))


def format_headline(
    headline: dict[str, Any] | None, as_of: str | None = None, console_url: str = ""
) -> list[str]:
    """Return the lines of a headline, with an empty one at the end; none for a console that sends no headline.

    `as_of`: end of its round, from which the time until a deadline and a recovery is counted. `console_url`: begin of
    the addresses of its actions.
    """
    if headline is None:
        return []
    state = State.parse(headline["state"])
    glyph = f"{state.look.glyph} " if state.look.glyph else ""
    lines = [click.style(f"{glyph}{headline['text']}", fg=state.look.terminal, bold=True)]
    if as_of and (remaining := _describe_remaining(headline, as_of)):
        lines.append(remaining)
    base_url = console_url.rstrip("/")
    lines += [f"Action: {action['label']} ({base_url}{action['path']})" for action in headline["actions"]]
    lines += [
        f"To prevent the next failure: {action['label']} ({base_url}{action['path']})"
        for action in headline["preventions"]
    ]
    if headline["incidents"]:
        lines.append(f"Open incidents: {', '.join(map(str, headline['incidents']))}")
    return [*lines, ""]


def _describe_remaining(headline: dict[str, Any], as_of: str) -> str:
    # An older console sends no `strands_at`.
    strands_at, recovers_at = (
        None if (text := headline.get(name)) is None else datetime.fromisoformat(text).timestamp()
        for name in ("strands_at", "recovers_at")
    )
    return describe_remaining(strands_at, recovers_at, datetime.fromisoformat(as_of).timestamp())


def _format_agents(agents: list[dict[str, Any]]) -> str:
    rows = [
        (
            agent["name"],
            format_agent_state(agent["state"]),
            agent["version"],
            labels_of(agent),
            mode_of(agent),
            proxies_of(agent),
            agent["explanation"],
        )
        for agent in agents
    ]
    return (
        format_table(("name", "state", "version", "labels", "reconnect mode", "proxies", "reason"), rows)
        if rows
        else "no matching agents"
    )


@click.command()
@console_options
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    help=f"Only agents in this state; -STATE excludes the state. Repeatable. States: {_STATES_HELP_TEXT}.",
)
@click.option(
    "--search",
    metavar="QUERY",
    default="",
    help="Only agents that match this search, such as 'state:stranded age:>5m label.env:prod -version:18.2.* web'.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Maximum number of agents."
)
@prints_response(_format_agents)
def agents(console: api.ConsoleClient, cluster: str, states: tuple[str, ...], search: str, limit: int) -> Any:
    """List agents with their state and the reason for it."""
    return list(console.iterate_agents({"state": states, "q": search}, cluster=cluster, limit=limit))


def _format_agent(agent: dict[str, Any]) -> str:
    texts_by_label = {
        "agent": f"{agent['name']} ({agent['id']})",
        "state": format_agent_state(agent["state"]),
        "since": format_time(agent["since"]) if agent["since"] else "",
        "reason": agent["explanation"],
        "cause": agent["cause"],
        "recovery": _format_recovery(agent),
        "auth": names_of([agent["auth"]] if agent["auth"] else []),
        "mode": mode_of(agent),
        "version": agent["version"],
        "labels": labels_of(agent),
        "tunnels to": proxies_of(agent),
        "home proxy": names_of([agent["home_proxy"]] if agent["home_proxy"] else []),
        "last heartbeat": format_time(agent["heartbeat_at"]) if agent["heartbeat_at"] else "",
        "expires": format_time(agent["expires_at"]) if agent["expires_at"] else "",
    }
    width = max(map(len, texts_by_label))
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in texts_by_label.items() if text)


@click.command()
@click.argument("agent_id", metavar="ID|NAME")
@console_options
@prints_response(_format_agent)
def agent(console: api.ConsoleClient, cluster: str, agent_id: str) -> Any:
    """Show one agent: state, reason, cause, recovery, connections."""
    return console.send_for_agent(
        agent_id, lambda quoted_id: console.get(f"/agents/{quoted_id}", cluster=cluster), cluster=cluster
    )


@click.command()
@console_options
@json_option
def instances(console: api.ConsoleClient, cluster: str, as_json: bool) -> None:
    """List auths and proxies with their states.

    AGENTS counts, for an auth, the agents whose last heartbeat it received (`refloat reconnect --auth NAME` moves them
    to other auths), and for a proxy, its tunnels; `last known` if it does not respond.
    """
    response = console.get("/instances", cluster=cluster)
    if as_json:
        print_json(response["instances"])
        return
    click.echo(format_instances(response["instances"]))
    click.echo(format_age(response))


def format_instances(instances: list[dict[str, Any]]) -> str:
    """Return a table of auths and proxies."""
    rows = [
        (
            instance["name"],
            # An older console sends no label.
            instance.get("label") or format_instance_state(instance["state"]),
            instance["address"],
            _format_load(instance),
            generation_of(instance),
            _format_drain(instance),
            # An older console sends no counts.
            " ".join(filter(None, (instance["explanation"], instance.get("counts_text", "")))),
        )
        for instance in instances
    ]
    return format_table(("name", "state", "address", "agents", "generation", "draining", "reason"), rows)


def _format_load(instance: dict[str, Any]) -> str:
    """Return how many agents an auth or tunnels a proxy has; a proxy that does not respond has last known ones."""
    is_proxy = instance["kind"] == InstanceKind.PROXY
    is_old = is_proxy and instance["state"] in _STATES_WITH_OLD_COUNTS
    # Of products that do not name the agents of tunnels, the proxies count them.
    has_counts = is_proxy and instance.get("counted_at") is not None
    count = sum(instance["connection_counts"].values()) if has_counts else instance["agent_count"]
    return f"{count}{' (last known)' if is_old else ''}"


def format_agent_state(slug: str) -> str:
    """Return the label of an agent state: `never connected` for `never`."""
    return _AGENT_STATE_LABELS.get(slug, format_slug(slug))


def format_instance_state(slug: str) -> str:
    """Return the label of an instance state: `not responding` for `silent`."""
    return _INSTANCE_STATE_LABELS.get(slug, format_slug(slug))


def format_slug(slug: str) -> str:
    """Return a slug in words: `at_risk` as `at risk`."""
    return slug.replace("_", " ")


def names_of(instances: list[dict[str, str]]) -> str:
    """Return the names of instances, separated by commas."""
    return ", ".join(instance["name"] for instance in instances)


def mode_of(agent: dict[str, Any]) -> str:
    """Return the policy of an agent's auth connection, `reconnect, health check`; empty when it is not known."""
    if agent["mode"] == "unknown":
        return ""
    return f"{agent['mode']}, health check" if agent["health_check"] else str(agent["mode"])


def labels_of(agent: dict[str, Any]) -> str:
    """Return the labels of an agent, `env=prod site=oslo`."""
    return " ".join(f"{key}={label_value}" for key, label_value in agent["labels"].items())


def generation_of(proxy: dict[str, Any]) -> str:
    """Return group and generation of a proxy; empty when it states none."""
    has_generation = proxy["group"] or proxy["generation"]
    return f"{proxy['group']} {proxy['generation']}".strip() if has_generation else ""


def proxies_of(agent: dict[str, Any]) -> str:
    """Return the proxies of an agent's tunnels by name, each with its generation where it states one."""
    names_and_generations = ((proxy["name"], generation_of(proxy)) for proxy in agent["proxies"])
    return ", ".join(
        f"{name} ({generation})" if generation else name for name, generation in names_and_generations
    )


def _format_drain(instance: dict[str, Any]) -> str:
    drain = instance["drain"]
    if drain is None:
        # An older console does not say what was requested.
        return "requested" if instance.get("is_drain_requested") else ""
    return drain["reason"] or "yes"


def format_age(response: dict[str, Any]) -> str:
    """Return the age of the data in a response, in words."""
    if response["age_ms"] is None:
        return "no data yet: no poll of the fleet has finished"
    seconds = f"data is {response['age_ms'] / 1000:.1f} s old"
    return (
        f"{seconds} (STALE): polling has stopped, so every state is unknown"
        if response["is_stale"]
        else seconds
    )


def _format_recovery(agent: dict[str, Any]) -> str:
    at = agent["recovers_at"]
    recovery = _RECOVERY_LABELS.get(agent["recovery"], agent["recovery"])
    return f"{recovery} at {format_time(at)}" if at else recovery
