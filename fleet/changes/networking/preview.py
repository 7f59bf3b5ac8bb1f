"""The effect of a networking config on tunnels while it is edited, before a plan is made. Pure.

docs/reference/networking-config.md, "Forecast".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fleet.changes.networking.closing_plan import ClosingRule
from fleet.changes.networking.plan import (
    FleetSnapshot,
    closing_notes_of,
    field_notes_of,
    forecast_for,
    to_json,
)
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import NetworkingConfig


@dataclass(frozen=True, slots=True)
class ConfigPreview:
    """The expected closings and dials of an edited config, as the plan of a change has them."""

    closing: dict[str, Any]
    rule: ClosingRule
    #: The closings if graceful tunnel closing were on; None where a rule is in force.
    closing_if_on: dict[str, Any] | None
    #: What limits or explains the numbers, and the effect of other fields, as sentences.
    notes: tuple[str, ...]


def preview_config(before: NetworkingConfig, after: NetworkingConfig, fleet: FleetSnapshot) -> ConfigPreview:
    """Return the effect of the config `after`, which may be the same as `before`."""
    before, after = rules.with_defaults(before), rules.with_defaults(after)
    plan = forecast_for(before, after, fleet)
    closing_if_on = None
    if plan.rule is ClosingRule.NONE:
        plan_if_on = forecast_for(before, replace(after, graceful_tunnel_closing=True), fleet)
        closing_if_on = to_json(plan_if_on, fleet)
    # The tunnels that stay open without a rule are in `closing_if_on`.
    notes = (*closing_notes_of(before, after, plan, None, fleet), *field_notes_of(before, after))
    return ConfigPreview(to_json(plan, fleet), plan.rule, closing_if_on, notes)
