"""`refloat runbooks`: list and show runbooks, and set their custom texts."""

from __future__ import annotations

from typing import Any, TextIO

import click

from fleet.cli import api
from fleet.cli.console import console_options
from fleet.cli.output import format_table, prints_response
from fleet.vocabulary.runbooks import RunbookCause

_cause_argument = click.argument("cause", type=click.Choice([cause.value for cause in RunbookCause]))


def _format_runbooks(runbooks: list[dict[str, Any]]) -> str:
    rows = [(runbook["cause"], runbook["label"], _describe_custom_text(runbook)) for runbook in runbooks]
    return format_table(("cause", "title", "custom text"), rows)


def _describe_custom_text(runbook: dict[str, Any]) -> str:
    """Return whose custom text a cluster shows; empty without one."""
    if runbook["cluster_text"]["text"]:
        return "cluster"
    return "whole installation" if runbook["installation_text"]["text"] else ""


def _format_runbook(runbook: dict[str, Any]) -> str:
    custom_text = runbook["cluster_text"]["text"] or runbook["installation_text"]["text"]
    parts = [
        f"{runbook['label']}\n{runbook['meaning']}",
        _format_steps("Diagnosis", runbook["diagnosis"]),
        _format_steps("Remedies", runbook["remedies"]),
    ]
    if custom_text:
        parts.append(f"Custom text ({_describe_custom_text(runbook)})\n{custom_text}")
    return "\n\n".join(parts)


def _format_steps(title: str, steps: list[str]) -> str:
    return "\n".join([title, *(f"{number}. {step}" for number, step in enumerate(steps, 1))])


@click.group()
def runbooks() -> None:
    """Show runbooks, one per cause of incidents, and set their custom texts."""


@runbooks.command("list")
@console_options
@prints_response(_format_runbooks)
def list_runbooks(console: api.ConsoleClient, cluster: str) -> Any:
    """List the runbooks, and which have a custom text."""
    return console.get("/runbooks", cluster=cluster)["runbooks"]


@runbooks.command()
@_cause_argument
@console_options
@prints_response(_format_runbook)
def show(console: api.ConsoleClient, cluster: str, cause: str) -> Any:
    """Show the runbook of CAUSE with its custom text."""
    return console.get(f"/runbooks/{cause}", cluster=cluster)


@runbooks.command("set")
@_cause_argument
@click.argument("text", required=False)
@click.option("--file", "file", type=click.File("r"), help="Read the text from a file; - is standard input.")
@click.option("--remove", "is_removal", is_flag=True, help="Remove the custom text.")
@click.option(
    "--all-clusters",
    "is_for_all",
    is_flag=True,
    help="Set the text of the whole installation, not of one cluster.",
)
@click.option(
    "--version", help="Version that the text is based on: fails if somebody changed the text since."
)
@console_options
def set_text(
    console: api.ConsoleClient,
    cluster: str,
    cause: str,
    text: str | None,
    file: TextIO | None,
    is_removal: bool,
    is_for_all: bool,
    version: str | None,
) -> None:
    """Set the custom text of the runbook of CAUSE: TEXT, a file, or none."""
    if sum((text is not None, file is not None, is_removal)) != 1:
        raise click.UsageError("give exactly one of TEXT, --file and --remove")
    scope = "installation" if is_for_all else "cluster"
    body = {"text": file.read() if file is not None else text or "", "scope": scope}
    if version is not None:
        body["version"] = version
    runbook = console.post(f"/runbooks/{cause}", body, cluster=cluster)
    owner = "the whole installation" if is_for_all else f"cluster {cluster}"
    stored_text = runbook[f"{scope}_text"]["text"]
    click.echo(f"custom text of runbook {cause} for {owner} {'saved' if stored_text else 'removed'}")
