"""`refloat data-health`: whether the data of a cluster can be trusted, and if not, what to do."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli import api
from fleet.cli.console import console_options
from fleet.cli.output import print_json
from fleet.processes.log_format import escape_unprintable

#: Exit codes by verdict: a script can act on them.
_EXIT_CODES = {"good": 0, "degraded": 1, "blind": 1}


@click.command()
@console_options
@click.option("--json", "as_json", is_flag=True, help="Print the API response as JSON.")
@click.pass_context
def data_health(context: click.Context, console: api.ConsoleClient, cluster: str, as_json: bool) -> None:
    """Show whether the data can be trusted, and if not, what to do.

    Exit code 0: good; 1: degraded or blind; 2: no answer.
    """
    health = console.get("/data-health", cluster=cluster)
    if as_json:
        print_json(health)
    else:
        click.echo(format_health(health))
    context.exit(_EXIT_CODES.get(health["verdict"], 1))


def format_health(health: dict[str, Any]) -> str:
    """Return the verdict, the problems with what to do, and one line for each part."""
    lines = [f"{health['verdict'].upper()}: {health['sentence']}"]
    for problem in health["problems"]:
        symbol = "✗" if problem["is_blinding"] else "!"
        lines += ["", f"{symbol} {problem['part']}: {problem['summary']}", f"  → {problem['remedy']}"]
    lines += ["", *(f"{name:10}{text}" for name, text in _summarize_parts(health))]
    return "\n".join(escape_unprintable(line).rstrip() for line in lines)


def _summarize_parts(health: dict[str, Any]) -> list[tuple[str, str]]:
    rounds, workers, queues = (
        health["rounds"],
        health["workers"]["workers"],
        ", ".join(f"{queue['name']} {queue['length']:,}" for queue in health["queues"]["queues"]),
    )
    late_count = sum(entry["is_late"] for entry in rounds["rounds"])
    alive_count = sum(worker["is_alive"] for worker in workers)
    targets, clocks, feeds = health["targets"], health["clocks"], health["feeds"]
    failed_checks = [
        finding for finding in health["services"]["findings"] if finding["verdict"] in ("warning", "error")
    ]
    texts = {
        "rounds": f"{len(rounds['rounds']):,} in the last hour, {late_count:,} late",
        "workers": f"{alive_count} alive of {len(workers)}",
        "queues": f"tasks that wait: {queues}",
        "targets": f"{targets['count']:,} instances, {targets['failing_count']:,} did not respond, "
        f"{targets['late_count']:,} late",
        "clocks": f"{sum(abs(row['offset_ms']) >= 2000 for row in clocks['rows'])} differ by 2 s or more",
        "feeds": f"{len(feeds['resets'])} started over in the last hour",
        "evidence": f"{len(health['evidence']['missing_capabilities'])} capabilities missing",
        "services": f"{len(failed_checks)} of {len(health['services']['findings'])} checks failed",
    }
    return [
        (name, f"cannot be read: {health[name]['error']}" if health[name]["error"] else text)
        for name, text in texts.items()
    ]
