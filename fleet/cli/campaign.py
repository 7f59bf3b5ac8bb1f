"""`refloat reconnect`: reconnect campaigns through a console. `refloat fleet reconnect` needs no console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from fleet.cli import api, plan_and_confirm
from fleet.cli.console import console_options
from fleet.cli.default_command_group import DefaultCommandGroup
from fleet.cli.output import Failure, format_table, prints_response
from fleet.protocol.durations import format_readable
from fleet.vocabulary.campaign_presets import DEFAULT_PRESET, PRESETS_BY_SLUG
from fleet.vocabulary.campaigns import CAMPAIGN_SETTING_NAMES, CampaignAgentState, ConnectionKind
from fleet.vocabulary.error_texts import summarize_error

_AGENT_STATE_LABELS = {state.value: state.label for state in CampaignAgentState}
#: States as `--state` takes them, each with its label where that is another word.
_STATES_HELP_TEXT = ", ".join(
    slug if label.lower() == slug.replace("-", " ") else f"{slug} ({label.lower()})"
    for slug, label in _AGENT_STATE_LABELS.items()
)

_change_argument = click.argument("change_id", metavar="CHANGE", type=int)


@click.group(cls=DefaultCommandGroup, default_command="start")
def reconnect() -> None:
    """Reconnect agents to other proxies or auths, with a campaign.

    A reconnect campaign starts with canaries, limits rate and concurrency, and aborts above a failure threshold. Each
    agent opens its new connection before it closes the old one, so user connections are not interrupted.
    docs/reference/campaigns.md

    \b
    refloat reconnect --auth auth-1 --dry-run   Show which agents would reconnect.
    refloat reconnect --auth auth-1             Reconnect all agents of auth-1 to other auths,
                                                even if auth-1 does not respond.
    refloat reconnect --proxy proxy-1           Reconnect all tunnels of proxy-1 to other proxies.

    `start` is the default command; `refloat reconnect start --help` lists the filters.
    """


@reconnect.command("start")
@console_options
@click.option(
    "--search",
    default="",
    metavar="QUERY",
    help="Target agents that match this search, such as 'state:stranded label.env:prod -version:18.2.* web'.",
)
@click.option(
    "--proxy",
    default="",
    metavar="PROXY",
    help="Target agents with a tunnel to this proxy; the tunnel moves to another proxy.",
)
@click.option(
    "--auth",
    default="",
    metavar="AUTH",
    help="Target agents connected to this auth; they connect to another auth.",
)
@click.option(
    "--connection",
    type=click.Choice([connection.value for connection in ConnectionKind]),
    help="Connection to move: tunnel (to a proxy) or auth (to an auth). Default: auth with --auth, else tunnel.",
)
@click.option(
    "--agent", "agents", multiple=True, metavar="AGENT", help="Target agent, by name or id (repeatable)."
)
@click.option(
    "--setting",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"Campaign setting that differs from the preset (repeatable). Keys: {', '.join(CAMPAIGN_SETTING_NAMES)}.",
)
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS_BY_SLUG)),
    help=f"Campaign settings by name. Default: {DEFAULT_PRESET.slug}.",
)
@plan_and_confirm.change_options
def start_command(
    console: api.ConsoleClient,
    cluster: str,
    search: str,
    proxy: str,
    auth: str,
    connection: str | None,
    agents: tuple[str, ...],
    settings: tuple[str, ...],
    preset: str | None,
    **change_options: Any,
) -> None:
    """Preview a campaign, confirm it, and watch its progress."""
    if not (search or proxy or auth or agents):
        raise Failure("no target agents were selected: give --search, --proxy, --auth or --agent")
    body: dict[str, Any] = {
        "q": search,
        "proxy": proxy,
        "agents": list(agents),
        "settings": dict(text.partition("=")[::2] for text in settings),
    }
    # Sent only if given: consoles of older versions reject these fields.
    body |= {
        name: filter_value
        for name, filter_value in (("auth", auth), ("connection", connection), ("preset", preset))
        if filter_value
    }
    plan_and_confirm.plan_and_run(console, cluster, "/reconnect/plan", body, **change_options)


def _format_status(progress: dict[str, Any]) -> str:
    rows = [
        (
            agent["name"],
            _AGENT_STATE_LABELS.get(agent["state"], agent["state"]),
            agent["from_instance"],
            agent.get("new_auth") or agent["new_proxy"],
            format_readable(round(agent["duration_seconds"], 1)) if agent["duration_seconds"] else "",
            summarize_error(agent["reason"]),
        )
        for agent in progress["agents"]
    ]
    agents_table = format_table(("agent", "state", "from", "to", "duration", "reason"), rows)
    return f"{plan_and_confirm.format_progress(progress)}\n{agents_table}"


@reconnect.command("status")
@_change_argument
@console_options
@click.option("--state", default="", help=f"Only agents in this state: {_STATES_HELP_TEXT}.")
@prints_response(_format_status)
def status_command(console: api.ConsoleClient, cluster: str, change_id: int, state: str) -> dict[str, Any]:
    """Show the progress of a campaign and the state of each agent."""
    progress = console.get(f"/changes/{change_id}/progress", cluster=cluster)
    return {**progress, "agents": list(_read_agents(console, cluster, change_id, state))}


def _read_agents(
    console: api.ConsoleClient, cluster: str, change_id: int, state: str
) -> Iterator[dict[str, Any]]:
    """Yield the agents of a campaign, requested page by page."""
    params: dict[str, Any] = {"state": state, "limit": 1000}
    while True:
        page = console.get(f"/changes/{change_id}/agents", params, cluster=cluster)
        yield from page["agents"]
        if page["next"] is None:
            return
        params["after"] = page["next"]


def _add_action_command(action: str, help_: str) -> None:
    @reconnect.command(action, help=help_)
    @_change_argument
    @console_options
    @prints_response(plan_and_confirm.format_progress)
    def command(console: api.ConsoleClient, cluster: str, change_id: int) -> Any:
        progress = console.get(f"/changes/{change_id}/progress", cluster=cluster)
        if action == "resume" and (warning := progress.get("resume_warning")):
            click.echo(warning, err=True)
        return plan_and_confirm.post_action(console, cluster, progress, "actions", {"action": action})


_add_action_command("pause", "Pause a campaign: no more agents start to reconnect.")
_add_action_command("resume", "Resume a paused campaign.")
_add_action_command("stop", "Stop a campaign after the agents in progress. Pending agents are skipped.")
_add_action_command("abort", "Abort a campaign now, without waiting for the agents in progress.")
