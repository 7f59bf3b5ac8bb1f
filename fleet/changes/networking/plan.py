"""The plan of a networking config change: its effect on tunnels and agents, in numbers and notes. Pure.

The plan is stored as JSON with the change (`to_json`), shown by page, API and CLI, and compared with the result
afterwards (`compare_with_plan`). docs/reference/networking-config.md, "Plan".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from fleet.changes.networking.closing_plan import (
    ClosingPlan,
    ClosingRule,
    CountRange,
    ObservedAgent,
    ObservedProxy,
    closing_rule_of,
    forecast_closings,
)
from fleet.changes.networking.source_rules import SourceRules
from fleet.protocol import durations
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import NetworkingConfig

#: Fields whose change closes or opens tunnels.
TUNNEL_FIELDS = frozenset(
    {
        "tunnel_strategy",
        "agent_connection_count",
        "graceful_tunnel_closing",
        "tunnel_closing_wait_min",
        "tunnel_closing_wait_max",
        "tunnel_disconnect_threshold",
    }
)
_PING_FIELDS = frozenset({"keep_alive_interval", "keep_alive_count_max"})
#: Seconds after which a tunnel that an agent has not opened is not expected any more, or `opening_seconds` if longer.
_DIAL_TIMEOUT_SECONDS = 60.0
#: Fields that Refloat's own agents and proxies use; the others are stored and served for Teleport instances.
SUPPORTED_FIELDS = TUNNEL_FIELDS | _PING_FIELDS
_OWN_RULES = SourceRules()

#: Parts of a plan by agent id, which responses leave out: there may be many thousands of agents.
KEYS_BY_AGENT = ("closing_tunnel_counts", "dialing_agents")


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """The fleet data from which a plan is made."""

    agents: tuple[ObservedAgent, ...]
    proxies: tuple[ObservedProxy, ...]
    #: Number of tunnels by proxy id.
    tunnel_counts_by_proxy: Mapping[str, int]
    #: Number of agents that are not retired.
    agent_count: int
    #: End of the newest round, seconds since the epoch, and its age, seconds.
    as_of: float
    age_seconds: float
    #: Time until the last agents act on a new config, about.
    reaction_seconds: float = 0.0


def moves_tunnels(before: NetworkingConfig, after: NetworkingConfig) -> bool:
    """Return whether a change makes agents open or close tunnels."""
    return any(field.name in TUNNEL_FIELDS for field, _, _ in rules.differences(before, after))


def plan_of(
    before: NetworkingConfig,
    after: NetworkingConfig,
    fleet: FleetSnapshot | None,
    source_rules: SourceRules = _OWN_RULES,
) -> dict[str, Any]:
    """Return the plan as JSON. `fleet` may be None where no tunnels open or close."""
    before, after = rules.with_defaults(before), rules.with_defaults(after)
    plan: dict[str, Any] = {"notes": [], "affected_count": 0}
    changed_names = {field.name for field, _, _ in rules.differences(before, after)}
    if fleet is not None:
        plan |= {
            "as_of": fleet.as_of,
            "data_age_seconds": round(fleet.age_seconds, 1),
            "agent_count": fleet.agent_count,
        }
    if changed_names & TUNNEL_FIELDS and source_rules.no_forecast_reason:
        assert fleet is not None, "a change that moves tunnels is planned with fleet data"
        plan["affected_count"] = fleet.agent_count
        plan["notes"].append(source_rules.no_forecast_reason)
    elif changed_names & TUNNEL_FIELDS:
        assert fleet is not None, "a change that moves tunnels is planned with fleet data"
        closing_plan = forecast_for(before, after, fleet)
        plan_if_on = None
        if closing_plan.rule is ClosingRule.NONE:
            plan_if_on = forecast_for(before, replace(after, graceful_tunnel_closing=True), fleet)
        plan["closing"] = to_json(closing_plan, fleet)
        plan["closing_tunnel_counts"] = dict(closing_plan.closing_tunnel_counts)
        plan["dialing_agents"] = {
            agent: list(numbers) for agent, numbers in closing_plan.dialing_agents.items()
        }
        plan["affected_count"] = len(closing_plan.affected_agents)
        plan["previous_rule"] = closing_rule_of(before).label
        plan["notes"] += closing_notes_of(before, after, closing_plan, plan_if_on, fleet)
    if changed_names & _PING_FIELDS:
        plan["affected_count"] = max(plan["affected_count"], fleet.agent_count if fleet else 0)
    plan["notes"] += field_notes_of(before, after, source_rules)
    plan["question"] = question_of(plan)
    return plan


def forecast_for(before: NetworkingConfig, after: NetworkingConfig, fleet: FleetSnapshot) -> ClosingPlan:
    """Return the expected effect of the config `after` on a fleet."""
    return forecast_closings(
        before, after, fleet.agents, fleet.proxies, fleet.tunnel_counts_by_proxy, fleet.reaction_seconds
    )


def to_json(plan: ClosingPlan, fleet: FleetSnapshot) -> dict[str, Any]:
    """Return the expected closings as JSON: all fields of a plan except those that name every agent."""
    public_fields = {field.name: getattr(plan, field.name) for field in fields(plan) if field.repr}
    # As in the database, where tuples are lists.
    document: dict[str, Any] = json.loads(json.dumps(public_fields, default=asdict))
    uncertain_names = [proxy.name for proxy in fleet.proxies if proxy.is_uncertain]
    return {**document, "rule_label": plan.rule.label, "uncertain_proxies": uncertain_names}


def question_of(plan: Mapping[str, Any]) -> str:
    """Return the question about tunnels that a person confirms; empty when none close or open."""
    closing = plan.get("closing")
    if closing is None:
        return ""
    if closing["closing_count"][1]:
        agents = format_counted_noun(closing["agent_count"], "agent")
        return f"Close {format_counted_noun(closing['closing_count'], 'tunnel')} of {agents}?"
    if closing["opening_count"]:
        agents = format_counted_noun([closing["opening_agent_count"]] * 2, "agent")
        return f"Open {format_counted_noun([closing['opening_count']] * 2, 'more tunnel')} from {agents}?"
    return ""


def format_range(numbers: Sequence[int] | CountRange) -> str:
    """Return a range as people read it: `5`, or `3 to 5`."""
    low, high = numbers
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def format_counted_noun(numbers: Sequence[int] | CountRange, noun: str) -> str:
    """Return a range with its noun: `5 tunnels`."""
    return f"{format_range(numbers)} {noun}{'' if numbers[1] == 1 else 's'}"


def compare_with_plan(plan: Mapping[str, Any], tunnel_counts_by_agent: Mapping[str, int]) -> dict[str, Any]:
    """Return the result so far, against the plan. `tunnel_counts_by_agent`: present numbers, by agent id.

    The tunnels of an agent that is missing there do not count as closed.
    """
    previous_counts: Mapping[str, int] = plan.get("closing_tunnel_counts", {})
    present_counts = {
        agent: tunnel_counts_by_agent[agent] for agent in previous_counts if agent in tunnel_counts_by_agent
    }
    closed_count = sum(
        max(previous_counts[agent] - tunnel_count, 0) for agent, tunnel_count in present_counts.items()
    )
    low, high = plan["closing"]["closing_count"]
    difference = closed_count - high if closed_count > high else min(closed_count - low, 0)
    dialing_agents: Mapping[str, Sequence[int]] = plan.get("dialing_agents", {})
    opened_count = sum(
        min(max(tunnel_counts_by_agent[agent] - previous_count, 0), missing_count)
        for agent, (previous_count, missing_count) in dialing_agents.items()
        if agent in tunnel_counts_by_agent
    )
    return {
        "closed_count": closed_count,
        "missing_agent_count": len(previous_counts)
        - len(present_counts)
        + sum(agent not in tunnel_counts_by_agent for agent in dialing_agents),
        "difference": difference,
        "expected_closed_count": [low, high],
        "opened_count": opened_count,
        "expected_opened_count": opening_count_of(plan),
    }


def compared_agents_of(plan: Mapping[str, Any]) -> frozenset[str]:
    """Return the ids of the agents whose tunnels `compare_with_plan` needs."""
    return frozenset({*plan.get("closing_tunnel_counts", {}), *plan.get("dialing_agents", {})})


def opening_count_of(plan: Mapping[str, Any]) -> int:
    """Return the number of tunnels that agents are expected to open."""
    return sum(missing_count for _, missing_count in plan.get("dialing_agents", {}).values())


def has_tunnel_moves(plan: Mapping[str, Any]) -> bool:
    """Return whether a plan closes or opens tunnels, so that its result must be verified."""
    return plan.get("closing", {}).get("closing_count", [0, 0])[1] > 0 or bool(plan.get("dialing_agents"))


def is_done(outcome: Mapping[str, Any]) -> bool:
    """Return whether the result has reached everything that the plan expects."""
    return bool(
        outcome["closed_count"] >= outcome["expected_closed_count"][1]
        and outcome["opened_count"] >= outcome["expected_opened_count"]
    )


def expected_duration_seconds_of(plan: Mapping[str, Any]) -> float:
    """Return the time after which all expected tunnels have closed and opened; 0: none expected."""
    steps = plan.get("closing", {}).get("steps", ())
    latest = [float(step["latest_seconds"]) for step in steps] + (
        [max(_DIAL_TIMEOUT_SECONDS, plan["closing"].get("opening_seconds", 0.0))]
        if plan.get("dialing_agents")
        else []
    )
    return max(latest, default=0.0)


def closing_notes_of(
    before: NetworkingConfig,
    after: NetworkingConfig,
    plan: ClosingPlan,
    plan_if_on: ClosingPlan | None,
    fleet: FleetSnapshot,
) -> list[str]:
    """Return what limits or explains the numbers of expected closings and dials, as sentences."""
    notes = []
    if after.connection_count == 0 and plan.rule is ClosingRule.RFD:
        notes.append(
            "In agent mesh every agent needs a tunnel to every proxy, so no tunnel is in excess. This rule closes only "
            "tunnels to expired proxies."
        )
    if after.connection_count == 0 and plan.rule is ClosingRule.UPSTREAM:
        notes.append(
            "In agent mesh no tunnel is in excess, and Teleport's rule does not close tunnels to expired proxies. It "
            "has no effect without proxy peering."
        )
    if plan.rule is ClosingRule.UPSTREAM and plan.closing_count[1]:
        notes.append(
            "Teleport's rule closes the slowest tunnel, by round-trip times that only the agents know. The numbers per "
            "proxy are therefore ranges."
        )
    if plan.rule is ClosingRule.NONE and plan_if_on is not None and plan_if_on.closing_count[1]:
        tunnels_text = format_counted_noun(plan_if_on.closing_count, "tunnel")
        agents_text = format_counted_noun(plan_if_on.agent_count, "agent")
        verb = "stay" if plan_if_on.closing_count[1] > 1 else "stays"
        notes.append(
            f"{tunnels_text} of {agents_text} {verb} open for ever: nothing closes excess tunnels while graceful "
            "tunnel closing is off. Closings that have begun stop."
        )
    if plan.in_use_count[1]:
        notes.append("A closing tunnel accepts no new user connections and ends with its last one.")
    if plan.opening_count:
        notes.append(
            f"The load balancer decides which proxies get the {plan.opening_count:,} new tunnels. Agents open them "
            f"within about {durations.format_readable(round(plan.opening_seconds))}."
        )
    if any(proxy.is_uncertain for proxy in fleet.proxies):
        names = ", ".join(proxy.name for proxy in fleet.proxies if proxy.is_uncertain)
        notes.append(
            f"Not healthy now: {names}. Agents may consider these proxies expired, so the numbers are ranges."
        )
    if plan.unsupported_agent_count:
        notes.append(
            f"{plan.unsupported_agent_count:,} agents with excess tunnels are too old to support the rule. "
            "Their tunnels stay open."
        )
    if plan.closing_count[1]:
        notes.append("Undoing the change does not reopen closed tunnels.")
    return notes


def field_notes_of(
    before: NetworkingConfig, after: NetworkingConfig, source_rules: SourceRules = _OWN_RULES
) -> list[str]:
    """Return the effect of changed fields that move no tunnels, as sentences."""
    changed_names = {field.name for field, _, _ in rules.differences(before, after)}
    notes = [_ping_note_of(before, after)] if changed_names & _PING_FIELDS else []
    unsupported_names = sorted(changed_names - SUPPORTED_FIELDS)
    if unsupported_names and source_rules.is_own:
        notes.append(
            f"Refloat's agents and proxies ignore {', '.join(unsupported_names)}. Teleport instances use "
            f"{'it' if len(unsupported_names) == 1 else 'them'}."
        )
    return notes


def _ping_note_of(before: NetworkingConfig, after: NetworkingConfig) -> str:
    def format_detection_time(config: NetworkingConfig) -> str:
        return durations.format_readable(config.keep_alive_interval * config.keep_alive_count_max)

    def format_interval(config: NetworkingConfig) -> str:
        return durations.format_readable(config.keep_alive_interval)

    return (
        f"Half-open tunnels will be detected after {format_detection_time(after)} (now "
        f"{format_detection_time(before)}). "
        f"Each tunnel will be pinged every {format_interval(after)} (now {format_interval(before)})."
    )


def describe_outcome(outcome: Mapping[str, Any]) -> str:
    """Return a result of `compare_with_plan` as a sentence."""
    expected_range, opened_count, expected_opened_count = (
        outcome["expected_closed_count"],
        outcome["opened_count"],
        outcome["expected_opened_count"],
    )
    parts = []
    if expected_range[1] or not expected_opened_count:
        comparison = f"{format_range(expected_range)} expected" if outcome["difference"] else "as expected"
        parts.append(f"{format_counted_noun([outcome['closed_count']] * 2, 'tunnel')} closed, {comparison}")
    if expected_opened_count:
        comparison = (
            f"{abs(expected_opened_count - opened_count):,} "
            f"{'fewer' if opened_count < expected_opened_count else 'more'} than expected ({expected_opened_count:,})"
            if opened_count != expected_opened_count
            else "as expected"
        )
        parts.append(f"{format_counted_noun([opened_count] * 2, 'tunnel')} opened, {comparison}")
    return "; ".join(parts)
