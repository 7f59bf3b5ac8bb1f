"""The forecast beside the editor of the networking config: closings, dials, changed fields, and the YAML diff."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboards.changes import change_rows
from dashboards.changes.change_rows import DiffRow
from dashboards.changes.pictures.closing_chart import ClosingChart, closing_chart_of
from dashboards.shared import record_reader
from dashboards.shared.pages import sentence_of
from fleet.changes import ChangeRefusedError
from fleet.changes.networking import revisions
from fleet.changes.networking.closing_plan import ClosingRule
from fleet.changes.networking.plan_input import fleet_snapshot_of
from fleet.changes.networking.preview import preview_config
from fleet.protocol import durations
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import NetworkingConfig


@dataclass(frozen=True, slots=True)
class ConfigForecast:
    """What an edited config would do."""

    #: `change_rows.closing_context_of` of the edited config, and of the same with graceful tunnel closing on.
    closing: dict[str, Any] | None = None
    closing_if_on: dict[str, Any] | None = None
    has_rule: bool = False
    chart: ClosingChart | None = None
    #: When tunnels close: `20 s to 1 min`; empty when none do.
    time_text: str = ""
    #: The same with graceful tunnel closing on.
    time_text_if_on: str = ""
    #: When tunnels close that become excess later; empty without a rule.
    wait_text: str = ""
    #: Why there is no forecast, as a sentence.
    sentence: str = ""
    #: Why clusters of this source never have a forecast, as a sentence; empty if they can have one.
    absence_reason: str = ""


@dataclass(frozen=True, slots=True)
class EditorState:
    """What the editor shows beside its fields."""

    forecast: ConfigForecast
    #: Fields that differ from the current config.
    diff: list[DiffRow] = field(default_factory=list)
    #: Lines of the YAML diff: `add`, `remove`, `same` or `skip`, and the text.
    yaml_diff: list[tuple[str, str]] = field(default_factory=list)


def forecast_config(cluster: str, before: NetworkingConfig, after: NetworkingConfig) -> ConfigForecast:
    """Return the forecast of an edited config, from the newest data of the fleet."""
    if absence_reason := revisions.source_rules_of(cluster).no_forecast_reason:
        return ConfigForecast(absence_reason=absence_reason)
    record = record_reader.take_record_snapshot()
    try:
        fleet = fleet_snapshot_of(record.table(cluster), record.reader.agent_responses(cluster), record.now)
    except ChangeRefusedError as error:
        return ConfigForecast(sentence=sentence_of(error))
    preview = preview_config(before, after, fleet)
    return ConfigForecast(
        closing=change_rows.closing_context_of({"closing": preview.closing}),
        closing_if_on=None
        if preview.closing_if_on is None
        else change_rows.closing_context_of({"closing": preview.closing_if_on}),
        has_rule=preview.rule is not ClosingRule.NONE,
        chart=closing_chart_of(preview.closing["steps"]),
        time_text=_format_times(preview.closing["steps"]),
        wait_text=_format_wait(preview.rule, after),
        time_text_if_on=_format_times((preview.closing_if_on or preview.closing)["steps"]),
    )


def _format_wait(rule: ClosingRule, config: NetworkingConfig) -> str:
    """Return how long after it becomes excess a tunnel closes."""
    if rule is ClosingRule.RFD:
        shortest, longest = map(durations.format_readable, config.closing_wait_bounds)
        return f"after a random time between the shortest and the longest wait ({shortest} to {longest})"
    if rule is ClosingRule.UPSTREAM:
        return (
            f"after the disconnect threshold, {durations.format_readable(config.tunnel_disconnect_threshold)}"
        )
    return ""


def changed_fields_of(before: NetworkingConfig, after: NetworkingConfig) -> list[DiffRow]:
    """Return the fields in which an edited config differs from the current one."""
    return [
        DiffRow(
            config_field.key,
            change_rows.format_field_value(config_field, old),
            change_rows.format_field_value(config_field, new),
        )
        for config_field, old, new in rules.differences(
            rules.with_defaults(before), rules.with_defaults(after)
        )
    ]


def diff_yaml(before: str, after: str) -> list[tuple[str, str]]:
    """Return the differences of two texts by line, with two lines around each; empty when there are none."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
    kinds = {"+": "add", "-": "remove", "@": "skip"}
    return [(kinds.get(line[:1], "same"), "…" if line.startswith("@@") else line) for line in list(lines)[2:]]


def _format_times(steps: Sequence[dict[str, Any]]) -> str:
    if not steps:
        return ""
    earliest = min(step["earliest_seconds"] for step in steps)
    latest = max(step["latest_seconds"] for step in steps)
    return f"{durations.format_readable(round(earliest))} to {durations.format_readable(round(latest))}"
