"""`refloat reconnect`: reconnect campaigns through a console. `refloat fleet reconnect` asks proxies themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from typing_extensions import override

from fleet.cli import api, plan_and_confirm
from fleet.cli.answers import prints, table
from fleet.cli.console import console_options
from fleet.protocol import durations
from fleet.vocabulary.campaigns import CAMPAIGN_SETTING_NAMES, ConnectionKind

_id = click.argument("change", metavar="CHANGE", type=int)


class _DefaultStartGroup(click.Group):
    """`refloat reconnect --proxy proxy-1 --plan` is `refloat reconnect start --proxy proxy-1 --plan`."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = ["start", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_DefaultStartGroup)
def reconnect() -> None:
    """Have many agents connect to another proxy, or another auth, with canaries, a rate, limits and thresholds.

    Each is there before it leaves, and no user connection is cut. docs/campaigns.md

    \b
    refloat reconnect --auth auth-1 --plan   Show the agents that would leave auth-1.
    refloat reconnect --auth auth-1          Move all agents of auth-1 to other auths,
                                             also when auth-1 does not answer.
    refloat reconnect --proxy proxy-1        Move all tunnels of proxy-1 to other proxies.

    Without a command it is `start`, whose --help lists the filters.
    """


@reconnect.command("start")
@console_options
@click.option("--search", default="", metavar="WORDS", help="Agents that match, as on the console's page.")
@click.option(
    "--proxy", default="", metavar="PROXY", help="Agents with a tunnel to it, which they are to leave."
)
@click.option(
    "--auth", default="", metavar="AUTH", help="Agents connected to it, which are to connect to another auth."
)
@click.option(
    "--connection",
    type=click.Choice([connection.value for connection in ConnectionKind]),
    help="What moves: tunnels, to another proxy, or auth connections, to another auth. Default: auth with --auth.",
)
@click.option("--agent", "agents", multiple=True, metavar="AGENT", help="By name or id; repeatable.")
@click.option(
    "--pace", multiple=True, metavar="KEY=VALUE", help=f"How fast, and when to give up: {', '.join(CAMPAIGN_SETTING_NAMES)}."
)
@plan_and_confirm.change_options
def start_command(
    console: api.Console,
    cluster: str,
    search: str,
    proxy: str,
    auth: str,
    connection: str | None,
    agents: tuple[str, ...],
    pace: tuple[str, ...],
    **change_options: Any,
) -> None:
    """Plan a campaign, ask, and watch it; --plan only shows it."""
    body: dict[str, Any] = {
        "q": search,
        "proxy": proxy,
        "agents": list(agents),
        "pace": dict(text.partition("=")[::2] for text in pace),
    }
    # Left out where nobody asks for it: a console of an older version does not know these fields.
    body |= {name: filter_value for name, filter_value in (("auth", auth), ("connection", connection)) if filter_value}
    change = plan_and_confirm.plan_change(console, cluster, "/reconnect/plan", body)
    plan = change["plan"]
    lines = [f"{plan['asked']} to be asked, about {durations.format_seconds(round(plan['seconds']))}"]
    lines += [f"  {count} leave {name}" for name, count in plan["leaving"].items()]
    lines += [
        f"  {name} has room, {count} agents now" for name, count in plan.get("destinations", {}).items()
    ]
    lines += [f"  {count} skipped: {reason}" for reason, count in plan["skipped"].items()]
    plan_and_confirm.run_change(console, cluster, change, lines, **change_options)


def _format_status(progress: dict[str, Any]) -> str:
    rows = [
        (
            agent["name"],
            agent["state"],
            agent["leaves"],
            agent.get("new_auth") or agent["new_proxy"],
            str(agent["seconds"] or ""),
            agent["reason"],
        )
        for agent in progress["agents"]
    ]
    return (
        f"{plan_and_confirm.format_progress(progress)}\n{table(('agent', 'result', 'from', 'to', 'seconds', 'why'), rows)}"
    )


@reconnect.command("status")
@_id
@console_options
@click.option("--state", default="", help="Only agents in this state: ok, failed, skipped, asked, ...")
@prints(_format_status)
def status_command(console: api.Console, cluster: str, change: int, state: str) -> dict[str, Any]:
    """Say how far a campaign is, and what became of its agents."""
    progress = console.get(f"/changes/{change}/progress", cluster=cluster)
    return {**progress, "agents": list(_read_agents(console, cluster, change, state))}


def _read_agents(console: api.Console, cluster: str, change: int, state: str) -> Iterator[dict[str, Any]]:
    """All of them, page by page."""
    params: dict[str, Any] = {"state": state, "limit": 1000}
    while True:
        page = console.get(f"/changes/{change}/agents", params, cluster=cluster)
        yield from page["agents"]
        if page["next"] is None:
            return
        params["after"] = page["next"]


def _add_action_command(action: str, help_: str) -> None:
    @reconnect.command(action, help=help_)
    @_id
    @console_options
    @prints(plan_and_confirm.format_progress)
    def command(console: api.Console, cluster: str, change: int) -> Any:
        progress = console.get(f"/changes/{change}/progress", cluster=cluster)
        return plan_and_confirm.post_action(console, cluster, progress, "do", {"do": action})


_add_action_command("pause", "Ask nobody new until it is resumed.")
_add_action_command("resume", "Go on.")
_add_action_command("stop", "Ask nobody new, watch who was asked, and end.")
_add_action_command("abort", "End it now.")
