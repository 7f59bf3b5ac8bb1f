"""`refloat rules`: list, show, add, change, override, backtest and delete alert rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from fleet.cli import api
from fleet.cli.alerts.incidents import parse_duration
from fleet.cli.alerts.settings import (
    confirm,
    drop_missing,
    find_setting,
    require_change,
    scope_option,
    yes_option,
)
from fleet.cli.console import console_options
from fleet.cli.output import format_table, prints_response
from fleet.nodes.shared.options import combine
from fleet.protocol.durations import format_exact

#: Fields of the API by flag with a duration.
_FIELD_OF_DURATION_FLAG: Mapping[str, str] = {
    "--pending-time": "pending_seconds",
    "--resolve-after": "recover_seconds",
    "--group-wait": "group_wait_seconds",
    "--group-interval": "group_interval_seconds",
    "--repeat-interval": "repeat_seconds",
}
_FLAG_OF_DURATION_FIELD = {field: flag for flag, field in _FIELD_OF_DURATION_FLAG.items()}

_threshold_options = combine(
    click.option("--min-count", type=int, help="Minimum number of agents."),
    click.option(
        "--min-share",
        metavar="PERCENT",
        help="Minimum share of agents, such as '0.5 %'. Both must be reached.",
    ),
    click.option("--agent-set", help="Only agents of this agent set count; empty: all agents."),
    click.option(
        "--pending-polls", "pending_rounds", type=int, help="Consecutive polls before the rule fires."
    ),
    click.option("--pending-time", metavar="DURATION", help="Time before the rule fires, such as 10min."),
    click.option(
        "--resolve-after", metavar="DURATION", help="Time without findings until the incident resolves."
    ),
)
_rule_options = combine(
    _threshold_options,
    click.option("--group-wait", metavar="DURATION", help="Wait before the first notification."),
    click.option("--group-interval", metavar="DURATION", help="Minimum interval of updates."),
    click.option(
        "--repeat-interval", metavar="DURATION", help="Repeat interval until somebody acknowledges."
    ),
    click.option("--runbook", metavar="URL", help="URL of the runbook; empty: the built-in one."),
)
_severity_choice = click.Choice(["critical", "warning", "info"])


def _format_rules(rules: list[dict[str, Any]]) -> str:
    rows = [
        (
            *(
                str(rule["number"]),
                rule["name"],
                rule["severity"],
                rule["cluster"] or "all",
                _format_state(rule),
            ),
            *(rule["condition"], rule["notifications"]),
        )
        for rule in rules
    ]
    return format_table(
        ("number", "name", "severity", "cluster", "state", "condition", "notifications"), rows
    )


def _format_state(rule: dict[str, Any]) -> str:
    if not rule["is_enabled"]:
        return "disabled"
    return "overridden" if rule["is_overridden"] else "enabled"


def _format_rule(rule: dict[str, Any]) -> str:
    hidden_fields = {"version", "is_enabled", "is_overridden"}
    rows = [_format_field(field, value) for field, value in rule.items() if field not in hidden_fields]
    return format_table(("field", "value"), [*rows, ("state", _format_state(rule))])


def _format_field(field: str, value: Any) -> tuple[str, str]:
    """Return the label of a field, that of its flag if it has one, and its value with its unit."""
    if field in _FLAG_OF_DURATION_FIELD:
        label = _FLAG_OF_DURATION_FIELD[field].removeprefix("--").replace("-", " ")
        return label, format_exact(value)
    if field == "min_share":
        return "min share", f"{100 * value:.10g} %"
    if field == "pending_rounds":
        return "pending polls", str(value)
    text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
    return field.removeprefix("is_").replace("_", " "), text


def _format_backtest(backtest: dict[str, Any]) -> str:
    rows = [
        (
            *(period["at"], period["duration"], str(period["peak_count"]), period["cause"]),
            *("" if period["incident"] is None else str(period["incident"]), period["inhibited_by"]),
        )
        for period in backtest["periods"]
    ]
    headings = ("at", "duration", "agents", "cause", "incident", "inhibited by")
    lines = [line for line in (backtest["condition"], backtest["summary"]) if line]
    lines += [format_table(headings, rows)] if rows else []
    lines += [f"{backtest['omitted_count']} older times are not listed"] if backtest["omitted_count"] else []
    return "\n".join(lines)


@click.group()
def rules() -> None:
    """Manage alert rules, which decide when an incident fires."""


@rules.command("list")
@console_options
@prints_response(_format_rules)
def list_rules(console: api.ConsoleClient, cluster: str) -> Any:
    """List alert rules with their conditions in words."""
    return console.get("/alert-rules", cluster=cluster)["rules"]


@rules.command()
@click.argument("rule")
@console_options
@prints_response(_format_rule)
def show(console: api.ConsoleClient, cluster: str, rule: str) -> Any:
    """Show a rule by number or name."""
    return find_setting(console, cluster, "alert-rules", "Rule", rule)


@rules.command()
@click.argument("name")
@click.option(
    "--kind", required=True, help="Condition: stranded, at-risk, instance, rate, excess and others."
)
@click.option("--severity", required=True, type=_severity_choice, help="Severity of its incidents.")
@_rule_options
@scope_option
@console_options
@prints_response(lambda rule: f"rule {rule['number']} added: {rule['name']}. {rule['condition']}")
def add(
    console: api.ConsoleClient, cluster: str, name: str, kind: str, severity: str, scope: str, **options: Any
) -> Any:
    """Add an alert rule.

    Example: refloat rules add "Web agents" --kind stranded --severity critical --agent-set web --repeat-interval 1h
    """
    body = {"name": name, "kind": kind, "severity": severity, "scope": scope, **_fields_of(**options)}
    return console.post("/alert-rules", body, cluster=cluster)


@rules.command()
@click.argument("rule")
@click.option("--name", help="New name. Built-in rules keep theirs.")
@click.option("--severity", type=_severity_choice, help="Severity of its incidents.")
@_rule_options
@console_options
@prints_response(lambda rule: f"rule {rule['number']} changed: {rule['name']}. {rule['condition']}")
def change(
    console: api.ConsoleClient,
    cluster: str,
    rule: str,
    name: str | None,
    severity: str | None,
    **options: Any,
) -> Any:
    """Change a rule by number or name. Values that are left out stay."""
    row = find_setting(console, cluster, "alert-rules", "Rule", rule)
    body = {"version": row["version"], **drop_missing(name=name, severity=severity), **_fields_of(**options)}
    require_change(body)
    return console.post(f"/alert-rules/{row['number']}", body, cluster=cluster)


def _make_switch(name: str, *, is_enabled: bool, help_text: str) -> None:
    """Add a command that enables or disables a rule."""

    @rules.command(name, help=help_text)
    @click.argument("rule")
    @console_options
    def run(console: api.ConsoleClient, cluster: str, rule: str) -> None:
        row = find_setting(console, cluster, "alert-rules", "Rule", rule)
        body = {"version": row["version"], "is_enabled": is_enabled}
        console.post(f"/alert-rules/{row['number']}", body, cluster=cluster)
        click.echo(f"rule {row['number']} {name}d: {row['name']}")


_make_switch("enable", is_enabled=True, help_text="Enable an alert rule.")
_make_switch("disable", is_enabled=False, help_text="Disable an alert rule; it keeps its values.")


@rules.command()
@click.argument("rule")
@console_options
@prints_response(
    lambda rule: (
        f"rule {rule['number']} of cluster {rule['cluster']} overrides {rule['name']}. Change it now."
    )
)
def override(console: api.ConsoleClient, cluster: str, rule: str) -> Any:
    """Override a rule of the whole installation in the cluster of --cluster, with a copy to change."""
    row = find_setting(console, cluster, "alert-rules", "Rule", rule)
    return console.post(f"/alert-rules/{row['number']}/override", {}, cluster=cluster)


@rules.command()
@click.argument("rule")
@_threshold_options
@console_options
@prints_response(_format_backtest)
def backtest(console: api.ConsoleClient, cluster: str, rule: str, **options: Any) -> Any:
    """Show when a rule would have fired in the last 7 days, with other thresholds if they are given.

    Nothing is stored.
    """
    row = find_setting(console, cluster, "alert-rules", "Rule", rule)
    return console.get(f"/alert-rules/{row['number']}/backtest", _fields_of(**options), cluster=cluster)


@rules.command()
@click.argument("rule")
@yes_option
@console_options
def delete(console: api.ConsoleClient, cluster: str, rule: str, is_confirmed: bool) -> None:
    """Delete a rule by number or name. Built-in rules cannot be deleted, only disabled."""
    row = find_setting(console, cluster, "alert-rules", "Rule", rule)
    confirm(f"Delete rule {row['name']}?", is_confirmed=is_confirmed)
    console.post(f"/alert-rules/{row['number']}/delete", {}, cluster=cluster)
    click.echo(f"rule {row['number']} deleted: {row['name']}")


def _fields_of(*, min_share: str | None, **options: Any) -> dict[str, Any]:
    """Return the fields of the API for the flags that were given. Raises BadParameter."""
    body = {}
    for flag, field in _FIELD_OF_DURATION_FLAG.items():
        duration = options.pop(flag[2:].replace("-", "_"), None)
        if duration is not None:
            body[field] = parse_duration(duration, flag)
    if min_share is not None:
        body["min_share"] = _parse_share(min_share)
    return drop_missing(**options) | body


def _parse_share(text: str) -> float:
    """Return the fraction of a percentage: `0.5 %` or `0.5`. Raises BadParameter."""
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise click.BadParameter(f"{text!r} is not a percentage from 0 to 100", param_hint="--min-share")
    return percent / 100
