"""`refloat service`: take auths and proxies out of service with their agents, and bring them back."""

from __future__ import annotations

import urllib.parse
from typing import Any

import click

from fleet.cli import api, plan_and_confirm
from fleet.cli.console import console_options
from fleet.cli.drain import find_instance_ids
from fleet.cli.output import Failure, print_json
from fleet.vocabulary.campaign_presets import DEFAULT_PRESET, PRESETS_BY_SLUG
from fleet.vocabulary.campaigns import CAMPAIGN_SETTING_NAMES

_instance_argument = click.argument("instance", metavar="ID|NAME")


@click.group()
def service() -> None:
    """Take auths and proxies out of service, and bring them back.

    \b
    refloat service take-out proxy-1 --dry-run   Show which agents would reconnect, and where to.
    refloat service take-out proxy-1             Drain proxy-1 and reconnect its agents.
    refloat service bring-back proxy-1 --reason "kernel updated"
    """


@service.command("take-out")
@_instance_argument
@console_options
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS_BY_SLUG)),
    default=DEFAULT_PRESET.slug,
    show_default=True,
    help="How fast agents reconnect.",
)
@click.option(
    "--setting",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help=f"Campaign setting that differs from the preset (repeatable). Keys: {', '.join(CAMPAIGN_SETTING_NAMES)}.",
)
@click.option(
    "--allow-last",
    is_flag=True,
    help="Allow taking out the last instance of its kind that accepts connections.",
)
@plan_and_confirm.change_options
def take_out_command(
    console: api.ConsoleClient,
    cluster: str,
    instance: str,
    preset: str,
    settings: tuple[str, ...],
    allow_last: bool,
    **change_options: Any,
) -> None:
    """Drain an auth or a proxy and reconnect its agents: preview, confirm, watch.

    To bring the instance back, run `refloat service bring-back`. `refloat drain` drains without reconnecting agents.
    """
    (instance_id,) = find_instance_ids(console, cluster, (instance,))
    body = {
        "preset": preset,
        "settings": dict(text.partition("=")[::2] for text in settings),
        "allow_last": allow_last,
    }
    path = f"/instances/{urllib.parse.quote(instance_id, safe='')}/out-of-service/plan"
    plan_and_confirm.plan_and_run(console, cluster, path, body, **change_options)


@service.command("bring-back")
@_instance_argument
@click.option("--reason", required=True, help="Reason, shown with the instance and kept in the audit log.")
@console_options
@click.option("--no-wait", is_flag=True, help="Exit without waiting until the instance accepts connections.")
@click.option("--json", "as_json", is_flag=True, help="Print the progress of the change as JSON.")
def bring_back_command(
    console: api.ConsoleClient, cluster: str, instance: str, reason: str, no_wait: bool, as_json: bool
) -> None:
    """Undrain an auth or a proxy, so that it accepts new connections again."""
    (instance_id,) = find_instance_ids(console, cluster, (instance,))
    path = f"/instances/{urllib.parse.quote(instance_id, safe='')}/drain"
    response = console.post(path, {"is_drained": False, "reason": reason}, cluster=cluster)
    change_path = f"/changes/{response['change_id']}"
    progress = (
        console.get(f"{change_path}/progress", cluster=cluster)
        if no_wait
        else plan_and_confirm.watch(console, cluster, change_path, verify=True)
    )
    if as_json:
        print_json(progress)
    else:
        click.echo(f"{response['name']}: {plan_and_confirm.format_progress(progress)}")
    if progress["state"] == "failed":
        raise Failure(f"change {progress['id']} failed: {progress['detail']}")
