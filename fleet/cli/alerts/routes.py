"""`refloat routes`: list, show, add, change, try and delete notification routes."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli import api
from fleet.cli.alerts.incidents import parse_duration
from fleet.cli.alerts.settings import (
    confirm,
    drop_missing,
    find_numbers,
    find_setting,
    require_change,
    scope_option,
    yes_option,
)
from fleet.cli.console import console_options
from fleet.cli.output import format_table, prints_response
from fleet.nodes.shared.options import combine

_QUIET_FORM = "22:00-06:00"

_route_options = combine(
    click.option(
        "--severity", "min_severity", type=click.Choice(["critical", "warning", "info"]),
        help="Minimum severity of the incidents.",
    ),
    click.option("--match", "matchers", metavar="MATCHERS", help="Only incidents that match, such as 'kind=proxy'."),
    click.option(
        "--channel", "channels", multiple=True, metavar="CHANNEL",
        help="Channel to notify, by number or name. Repeat for several; none: those of the parent.",
    ),
    click.option(
        "--with-parent/--without-parent", "includes_parent_channels", default=None,
        help="Whether to notify the channels of the parent route, too.",
    ),
    click.option("--escalate-after", metavar="DURATION", help="Time without acknowledgement, such as 15min."),
    click.option(
        "--escalate-to", "escalate_to", multiple=True, metavar="CHANNEL",
        help="Channel to notify then, by number or name.",
    ),
    click.option("--quiet", "quiet_hours", metavar="FROM-UNTIL", help="Local quiet hours, such as 22:00-06:00."),
    click.option("--quiet-zone", metavar="ZONE", help="IANA time zone of the quiet hours. Default: UTC."),
    click.option("--continue/--stop", "continues", default=None, help="Whether to try the next routes, too."),
    click.option("--parent", metavar="ROUTE", help="Parent route, by number or name."),
    click.option("--root", "is_root", is_flag=True, help="Make it a root route."),
    click.option("--position", type=int, help="Position among the routes with the same parent."),
)  # fmt: skip


def _format_routes(routes: list[dict[str, Any]]) -> str:
    rows = [
        (
            *(str(route["number"]), f"{'  ' * route['depth']}{route['name']}", route["cluster"] or "all"),
            route["sentence"],
        )
        for route in routes
    ]
    return format_table(("number", "name", "cluster", "effect"), rows) if rows else "no routes"


def _format_route(route: dict[str, Any]) -> str:
    rows = [
        ("number", str(route["number"])),
        ("name", route["name"]),
        ("cluster", route["cluster"] or "all"),
        ("parent", "none" if route["parent"] is None else str(route["parent"])),
        ("position", str(route["position"])),
        ("matchers", route["matchers"] or "all incidents"),
        ("channels", ", ".join(channel["name"] for channel in route["channels"]) or "those of the parent"),
        ("effect", route["sentence"]),
    ]
    return format_table(("field", "value"), rows)


def _format_trial(trial: dict[str, Any]) -> str:
    if not trial["notifications"]:
        if trial.get("note"):  # an older console sends none
            return f"{trial['subject']} notifies nobody. {trial['note']}"
        reason = "the route that it ends at has no channel" if trial["paths"] else "no route matches it"
        return f"{trial['subject']} notifies nobody: {reason}"
    lines = [f"  {step['channel']} {step['time_text']}" for step in trial["notifications"]]
    return "\n".join((f"{trial['subject']} notifies:", *lines, f"route: {'; '.join(trial['paths'])}"))


@click.group()
def routes() -> None:
    """Manage notification routes, which select the channels of an incident."""


@routes.command("list")
@console_options
@prints_response(_format_routes)
def list_routes(console: api.ConsoleClient, cluster: str) -> Any:
    """List notification routes in the order in which they are tried."""
    return console.get("/routes", cluster=cluster)["routes"]


@routes.command()
@click.argument("route")
@console_options
@prints_response(_format_route)
def show(console: api.ConsoleClient, cluster: str, route: str) -> Any:
    """Show a route by number or name."""
    return find_setting(console, cluster, "routes", "Route", route)


@routes.command()
@click.option("--name", help="Name. Default: the incidents of the route.")
@_route_options
@scope_option
@console_options
@prints_response(lambda route: f"route {route['number']} added: {route['sentence']}")
def add(console: api.ConsoleClient, cluster: str, name: str | None, scope: str, **options: Any) -> Any:
    """Add a notification route, below the only root route unless --parent or --root is given.

    Example: refloat routes add --severity critical --channel pager --escalate-after 15min --escalate-to chief
    """
    body = {"scope": scope, **drop_missing(name=name), **_fields_of(console, cluster, **options)}
    return console.post("/routes", body, cluster=cluster)


@routes.command()
@click.argument("route")
@click.option("--name", help="New name.")
@click.option("--no-channels", is_flag=True, help="Use the channels of the parent route.")
@click.option("--no-escalation", is_flag=True, help="Use the escalation of the parent route.")
@click.option("--no-quiet", is_flag=True, help="Remove the quiet hours.")
@_route_options
@console_options
@prints_response(lambda route: f"route {route['number']} changed: {route['sentence']}")
def change(
    console: api.ConsoleClient,
    cluster: str,
    route: str,
    name: str | None,
    no_channels: bool,
    no_escalation: bool,
    no_quiet: bool,
    **options: Any,
) -> Any:
    """Change or move a route by number or name. Values that are left out stay."""
    for flag, is_given, name_of_option in (
        ("--no-channels", no_channels, "channels"),
        ("--no-escalation", no_escalation, "escalate_to"),
        ("--no-quiet", no_quiet, "quiet_hours"),
    ):
        if is_given and options[name_of_option]:
            raise click.UsageError(f"give {flag} or new values, not both")
    row = find_setting(console, cluster, "routes", "Route", route)
    body = {"version": row["version"], **drop_missing(name=name), **_fields_of(console, cluster, **options)}
    if no_channels:
        body["channels"] = []
    if no_escalation:
        body["escalate_to"] = []
    if no_quiet:
        body["has_quiet_hours"] = False
    require_change(body)
    return console.post(f"/routes/{row['number']}", body, cluster=cluster)


@routes.command("try")
@click.argument("cause", default="agents")
@click.option("--severity", type=click.Choice(["critical", "warning"]), default="critical", show_default=True)
@click.option("--rule", default="", help="Name of the alert rule. Default: any.")
@click.option("--agent-set", default="", help="Agent set with an affected agent. Default: none.")
@console_options
@prints_response(_format_trial)
def try_routes(
    console: api.ConsoleClient, cluster: str, cause: str, severity: str, rule: str, agent_set: str
) -> Any:
    """Show whom an incident would notify, and when. Nothing is sent.

    CAUSE is an instance such as proxy-1 (proxy:proxy-1 if an auth has that name, too), or agents (without a failing
    instance), backend, fleet, cluster or console.
    """
    query = {"cause": cause, "severity": severity, "rule": rule, "agent_set": agent_set}
    return console.get("/routes/try", query, cluster=cluster)


@routes.command()
@click.argument("route")
@yes_option
@console_options
def delete(console: api.ConsoleClient, cluster: str, route: str, is_confirmed: bool) -> None:
    """Delete a route by number or name, with its child routes."""
    row = find_setting(console, cluster, "routes", "Route", route)
    all_routes = console.get("/routes", cluster=cluster)["routes"]
    has_children = any(route_item["parent"] == row["number"] for route_item in all_routes)
    with_children = " with its child routes" if has_children else ""
    confirm(f"Delete route {row['name']}{with_children}?", is_confirmed=is_confirmed)
    response = console.post(f"/routes/{row['number']}/delete", {}, cluster=cluster)
    names = ", ".join((row["name"], *response["deleted_child_routes"]))
    click.echo(f"route {row['number']} deleted: {names}")


def _fields_of(
    console: api.ConsoleClient,
    cluster: str,
    *,
    channels: tuple[str, ...],
    escalate_to: tuple[str, ...],
    escalate_after: str | None,
    quiet_hours: str | None,
    parent: str | None,
    is_root: bool,
    **fields: Any,
) -> dict[str, Any]:
    """Return the fields of the API for the flags that were given. Raises Failure, UsageError."""
    if parent is not None and is_root:
        raise click.UsageError("give --parent or --root, not both")
    body = drop_missing(**fields)
    if escalate_after is not None:
        body["escalate_after_seconds"] = parse_duration(escalate_after, "--escalate-after")
    if quiet_hours is not None:
        start, dash, end = quiet_hours.partition("-")
        if not dash:
            raise click.BadParameter(
                f"{quiet_hours!r} is not of the form {_QUIET_FORM}", param_hint="--quiet"
            )
        body |= {"quiet_from": start.strip().rjust(5, "0"), "quiet_until": end.strip().rjust(5, "0")}
    for field, names in (("channels", channels), ("escalate_to", escalate_to)):
        if names:
            body[field] = find_numbers(console, cluster, "channels", "Channel", names)
    if parent is not None:
        body["parent"] = find_setting(console, cluster, "routes", "Route", parent)["number"]
    return body | ({"is_root": True} if is_root else {})
