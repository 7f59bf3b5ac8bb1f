"""`refloat watch`: agents by state and the instances, refreshed every second."""

from __future__ import annotations

import shutil
import time

import click

from fleet.cli import api
from fleet.cli.console import console_options, format_age, format_headline, format_instances
from fleet.cli.output import Failure
from fleet.nodes.shared.numbers import FiniteRange
from fleet.vocabulary.verdicts import State

#: Cursor home, then clear to the end of the screen: it flickers less than clearing the screen first.
_REDRAW = "\033[H\033[J"


@click.command()
@console_options
@click.option(
    "--interval",
    type=FiniteRange(min=0.2),
    default=1.0,
    show_default=True,
    help="Seconds between two refreshes.",
)
@click.option("--once", is_flag=True, help="Print the fleet once and exit.")
def watch(console: api.ConsoleClient, cluster: str, interval: float, once: bool) -> None:
    """Show agent counts by state and all instances, live, until Ctrl-C."""
    while True:
        try:
            screen = render_screen(console, cluster, shutil.get_terminal_size().columns)
        except Failure as error:
            if once:
                raise
            screen = error.format_message()  # the console may come back: keep refreshing
        click.echo(screen if once else f"{_REDRAW}{screen}")
        if once:
            return
        time.sleep(interval)


def render_screen(console: api.ConsoleClient, cluster: str, columns: int) -> str:
    """Return headline, counts with a bar per state that has agents, and the table of instances. Raises Failure."""
    summary = console.get("/fleet/summary", cluster=cluster)
    instances = console.get("/instances", cluster=cluster)["instances"]
    bar_width = max(columns - 27, 10)
    lines = [
        f"{cluster}: {summary['agent_count']} agents, {format_age(summary)}",
        *format_headline(summary.get("headline"), summary.get("as_of"), console.url),
    ]
    for state in State:
        count = summary["counts"].get(state.slug, 0)
        if count:
            bar = "█" * max(1, round(bar_width * count / max(summary["agent_count"], 1)))
            lines.append(f"{state.label:<15} {count:>7}  {click.style(bar, fg=state.look.terminal)}")
    return "\n".join([*lines, "", format_instances(instances)])
