"""`refloat alerting`: export and import the whole configuration of alerting as YAML."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from fleet.cli import api
from fleet.cli.alerts.settings import confirm, yes_option
from fleet.cli.console import console_options
from fleet.cli.output import Failure, json_option, print_json

#: A reference to a secret in a document.
_REFERENCE_PATTERN = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SIGNS = {"add": "+", "change": "~", "remove": "-"}
_COLOURS = {"add": "green", "change": "yellow", "remove": "red"}
_OUTCOMES = {"add": "added", "change": "changed", "remove": "removed"}


@click.group("alerting")
def alerting_group() -> None:
    """Export and import channels, routes, rules and maintenance windows as one YAML file."""


@alerting_group.command("export")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@console_options
def export_file(console: api.ConsoleClient, cluster: str, file: Path | None) -> None:
    """Write the configuration to FILE, or to standard output.

    It has what belongs to the cluster and to the whole installation. Secrets are placeholders.
    """
    document = console.get("/alerting", cluster=cluster)["document"]
    if file is None or str(file) == "-":
        click.echo(document, nl=False)
        return
    try:
        file.write_text(document, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{file} cannot be written: {error}") from error
    click.echo(f"configuration of cluster {cluster} written to {file}")


@alerting_group.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@click.option(
    "--prune",
    is_flag=True,
    help="Remove what is not in the file, from the sections that the file has. Built-in rules stay.",
)
@click.option(
    "--everything",
    "is_everything",
    is_flag=True,
    help="Confirm a maintenance window that silences everything.",
)
@yes_option
@json_option
@console_options
def import_file(
    console: api.ConsoleClient,
    cluster: str,
    file: Path,
    dry_run: bool,
    prune: bool,
    is_everything: bool,
    is_confirmed: bool,
    as_json: bool,
) -> None:
    """Show what FILE (- for standard input) changes, ask, and apply all of it or nothing.

    What the file does not name is kept: sections, objects and fields. A secret is ${NAME}: its value is the environment
    variable NAME. While that variable is not set, the name of the export keeps the secret that is stored.
    """
    text = _read(file)
    body = {"document": text, "variables": _find_variables(text), "prune": prune}
    plan = console.post("/alerting/plan", body, cluster=cluster)
    if as_json and dry_run:
        print_json(plan)
        return
    click.echo(_format_plan(plan, is_pruned=prune), err=as_json)
    if dry_run or not plan["changes"]:
        if as_json:
            print_json(plan)
        return
    if plan["is_confirmation_required"] and not is_everything:
        raise Failure(
            "nothing was changed: a maintenance window silences everything. Add --everything to confirm"
        )
    confirm(f"Apply {_count(plan)}?", is_confirmed=is_confirmed)
    body |= {"fingerprint": plan["fingerprint"], "confirmation": "everything" if is_everything else ""}
    applied_plan = console.post("/alerting/apply", body, cluster=cluster)
    if as_json:
        print_json(applied_plan)
    else:
        click.echo(f"{_count(applied_plan)} applied")


def _read(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{file} cannot be read: {error}") from error


def _find_variables(text: str) -> dict[str, str]:
    """Return the environment variables that a document refers to and that are set."""
    names = sorted(set(_REFERENCE_PATTERN.findall(text)))
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def _format_plan(plan: dict[str, Any], *, is_pruned: bool) -> str:
    """Return the changes, one line for each object and each field."""
    if not plan["changes"]:
        return "No changes."
    lines = []
    for change in plan["changes"]:
        owner = f" (cluster {change['cluster']})" if change["cluster"] else ""
        headline = f"{_SIGNS[change['action']]} {change['kind']} {change['name']}{owner}"
        lines.append(click.style(headline, fg=_COLOURS[change["action"]]))
        for field in change["fields"]:
            before = "" if change["action"] == "add" else f"{field['before']} → "
            lines.append(f"    {field['field']}: {before}{field['after']}")
    remainder = (
        "Sections that the file does not have are kept"
        if is_pruned
        else "What the file does not name is kept"
    )
    return "\n".join((*lines, f"{_count(plan)}. {remainder}."))


def _count(plan: dict[str, Any]) -> str:
    """Return the number of changes: `2 added, 1 changed`."""
    actions = [change["action"] for change in plan["changes"]]
    counts = ((actions.count(action), outcome) for action, outcome in _OUTCOMES.items())
    return ", ".join(f"{count} {outcome}" for count, outcome in counts if count)
