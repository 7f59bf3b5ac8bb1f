"""`refloat reconnect`: reconnect campaigns through a console. `refloat fleet reconnect` asks proxies themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
from typing_extensions import override

from fleet.cli import api, plan_and_confirm
from fleet.cli.answers import prints, table
from fleet.cli.console import asks_console
from fleet.protocol import durations
from fleet.vocabulary.campaigns import PACE, Connection

_id = click.argument("change", metavar="CHANGE", type=int)


class _StartsByDefault(click.Group):
    """`refloat reconnect --proxy proxy-1 --plan` is `refloat reconnect start --proxy proxy-1 --plan`."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = ["start", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_StartsByDefault)
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
@asks_console
@click.option("--search", default="", metavar="WORDS", help="Agents that match, as on the console's page.")
@click.option(
    "--proxy", default="", metavar="PROXY", help="Agents with a tunnel to it, which they are to leave."
)
@click.option(
    "--auth", default="", metavar="AUTH", help="Agents connected to it, which are to connect to another auth."
)
@click.option(
    "--connection",
    type=click.Choice([connection.value for connection in Connection]),
    help="What moves: tunnels, to another proxy, or auth connections, to another auth. Default: auth with --auth.",
)
@click.option("--agent", "agents", multiple=True, metavar="AGENT", help="By name or id; repeatable.")
@click.option(
    "--pace", multiple=True, metavar="KEY=VALUE", help=f"How fast, and when to give up: {', '.join(PACE)}."
)
@plan_and_confirm.agreeing
def start_command(
    console: api.Console,
    cluster: str,
    search: str,
    proxy: str,
    auth: str,
    connection: str | None,
    agents: tuple[str, ...],
    pace: tuple[str, ...],
    **how: Any,
) -> None:
    """Plan a campaign, ask, and watch it; --plan only shows it."""
    body: dict[str, Any] = {
        "q": search,
        "proxy": proxy,
        "agents": list(agents),
        "pace": dict(text.partition("=")[::2] for text in pace),
    }
    # Left out where nobody asks for it: a console of an older version does not know these fields.
    body |= {name: value for name, value in (("auth", auth), ("connection", connection)) if value}
    change = plan_and_confirm.plan(console, cluster, "/reconnect/plan", body)
    planned = change["plan"]
    lines = [f"{planned['asked']} to be asked, about {durations.format_seconds(round(planned['seconds']))}"]
    lines += [f"  {count} leave {name}" for name, count in planned["leaving"].items()]
    lines += [
        f"  {name} has room, {count} agents now" for name, count in planned.get("destinations", {}).items()
    ]
    lines += [f"  {count} skipped: {why}" for why, count in planned["skipped"].items()]
    plan_and_confirm.carry_out(console, cluster, change, lines, **how)


def _status(said: dict[str, Any]) -> str:
    rows = [
        (
            agent["name"],
            agent["state"],
            agent["leaves"],
            agent.get("new_auth") or agent["new_proxy"],
            str(agent["seconds"] or ""),
            agent["reason"],
        )
        for agent in said["agents"]
    ]
    return (
        f"{plan_and_confirm.line(said)}\n{table(('agent', 'result', 'from', 'to', 'seconds', 'why'), rows)}"
    )


@reconnect.command("status")
@_id
@asks_console
@click.option("--state", default="", help="Only agents in this state: ok, failed, skipped, asked, ...")
@prints(_status)
def status_command(console: api.Console, cluster: str, change: int, state: str) -> dict[str, Any]:
    """Say how far a campaign is, and what became of its agents."""
    said = console.get(f"/changes/{change}/progress", cluster=cluster)
    return {**said, "agents": list(_results(console, cluster, change, state))}


def _results(console: api.Console, cluster: str, change: int, state: str) -> Iterator[dict[str, Any]]:
    """All of them, page by page."""
    asked: dict[str, Any] = {"state": state, "limit": 1000}
    while True:
        page = console.get(f"/changes/{change}/agents", asked, cluster=cluster)
        yield from page["agents"]
        if page["next"] is None:
            return
        asked["after"] = page["next"]


def _doing(what: str, help_: str) -> None:
    @reconnect.command(what, help=help_)
    @_id
    @asks_console
    @prints(plan_and_confirm.line)
    def command(console: api.Console, cluster: str, change: int) -> Any:
        seen = console.get(f"/changes/{change}/progress", cluster=cluster)
        return plan_and_confirm.tell(console, cluster, seen, "do", {"do": what})


_doing("pause", "Ask nobody new until it is resumed.")
_doing("resume", "Go on.")
_doing("stop", "Ask nobody new, watch who was asked, and end.")
_doing("abort", "End it now.")
