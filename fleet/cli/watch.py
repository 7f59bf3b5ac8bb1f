"""`refloat watch`: the counts and the instances, drawn anew every second."""

from __future__ import annotations

import shutil
import time

import click

from fleet.cli import api
from fleet.cli.answers import Failure
from fleet.cli.console import format_age, console_options, format_instances
from fleet.nodes.shared.numbers import Number
from fleet.vocabulary.verdicts import State

#: Home, and clear to the end of the screen: less flicker than clearing first.
_REDRAW = "\033[H\033[J"


@click.command()
@console_options
@click.option(
    "--interval",
    type=Number(min=0.2),
    default=1.0,
    show_default=True,
    help="Seconds between looks.",
)
@click.option("--once", is_flag=True, help="Draw once and end.")
def watch(console: api.Console, cluster: str, interval: float, once: bool) -> None:
    """Watch the fleet until Ctrl-C."""
    while True:
        try:
            picture = draw(console, cluster, shutil.get_terminal_size().columns)
        except Failure as error:
            if once:
                raise
            picture = error.format_message()  # it may come back: keep looking
        click.echo(picture if once else f"{_REDRAW}{picture}")
        if once:
            return
        time.sleep(interval)


def draw(console: api.Console, cluster: str, columns: int) -> str:
    """Draw one picture, with a bar as long as its share for every state that has agents. Raises Failure."""
    summary = console.get("/fleet/summary", cluster=cluster)
    instances = console.get("/instances", cluster=cluster)["instances"]
    bar_width = max(columns - 22, 10)
    lines = [f"{cluster}: {summary['agents']} agents, {format_age(summary)}", ""]
    for state in State:
        count = summary["counts"].get(state.slug, 0)
        if count:
            bar = "█" * max(1, round(bar_width * count / max(summary["agents"], 1)))
            lines.append(f"{state.label:<10} {count:>7}  {click.style(bar, fg=state.look.terminal)}")
    return "\n".join([*lines, "", format_instances(instances)])
