"""The plan of a change of the networking config: what of it matters to whom, in numbers and in words. Pure.

The plan is kept as JSON with the change (`to_json`), is what page, API and terminal show, and is held against what
happened afterwards (`compare`). docs/networking-config.md, "The plan".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from fleet.changes.networking.closing_plan import (
    ClosingPlan,
    CountRange,
    ClosingRule,
    ObservedAgent,
    ObservedProxy,
    forecast_closings,
    rule_of,
)
from fleet.protocol import durations
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import NetworkingConfig

#: A change of any of these moves tunnels.
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
#: Agents hear of the config within seconds, and dial a tunnel a second or so; one that has not by then may not at all.
_DIAL_TIMEOUT_SECONDS = 60.0
#: What Refloat's own agents and proxies follow; all else is kept and served for Teleport's programs.
SUPPORTED_FIELDS = TUNNEL_FIELDS | _PING_FIELDS


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """What is seen of a fleet when a plan is made."""

    agents: tuple[ObservedAgent, ...]
    proxies: tuple[ObservedProxy, ...]
    #: Tunnels by proxy id.
    tunnel_counts: Mapping[str, int]
    #: All agents that are not retired, also those with one tunnel.
    agent_count: int
    #: When the newest round concluded, and how old that is, seconds.
    as_of: float
    age_seconds: float


def moves_tunnels(before: NetworkingConfig, after: NetworkingConfig) -> bool:
    """Whether a change makes agents dial or close."""
    return any(field.name in TUNNEL_FIELDS for field, _, _ in rules.differences(before, after))


def plan_of(before: NetworkingConfig, after: NetworkingConfig, fleet: FleetSnapshot | None) -> dict[str, Any]:
    """The plan as JSON. `fleet` may be None where tunnels are not moved."""
    before, after = rules.with_defaults(before), rules.with_defaults(after)
    plan: dict[str, Any] = {"notes": [], "agents": 0}
    changed_names = {field.name for field, _, _ in rules.differences(before, after)}
    if fleet is not None:
        plan |= {"as_of": fleet.as_of, "age": round(fleet.age_seconds, 1), "size": fleet.agent_count}
    if changed_names & TUNNEL_FIELDS:
        assert fleet is not None, "a change that moves tunnels is planned with the fleet in sight"
        closing_plan = forecast_closings(before, after, fleet.agents, fleet.proxies, fleet.tunnel_counts)
        plan["closing"] = to_json(closing_plan, fleet)
        plan["watched"] = dict(closing_plan.closing_tunnel_counts)
        plan["dialling"] = {agent: list(numbers) for agent, numbers in closing_plan.dialing_agents.items()}
        plan["agents"] = len(closing_plan.affected_agents)
        plan["rule_before"] = rule_of(before).label
        plan["notes"] += _closing_notes(before, after, closing_plan, fleet)
    if changed_names & _PING_FIELDS:
        plan["agents"] = max(plan["agents"], fleet.agent_count if fleet else 0)
        plan["notes"].append(_ping_note(before, after))
    unsupported_names = sorted(changed_names - SUPPORTED_FIELDS)
    if unsupported_names:
        plan["notes"].append(
            f"Refloat's own agents and proxies do nothing with {', '.join(unsupported_names)}; Teleport's do."
        )
    plan["question"] = question_of(plan)
    return plan


def to_json(plan: ClosingPlan, fleet: FleetSnapshot) -> dict[str, Any]:
    """The foreseen closings, for people and programs: all of a plan but what names every agent."""
    public_fields = {field.name: getattr(plan, field.name) for field in fields(plan) if field.repr}
    # As the database keeps it, where tuples are lists.
    document: dict[str, Any] = json.loads(json.dumps(public_fields, default=asdict))
    unsure = [proxy.name for proxy in fleet.proxies if proxy.is_uncertain]
    return {**document, "rule_label": plan.rule.label, "unsure_proxies": unsure}


def question_of(plan: Mapping[str, Any]) -> str:
    """What is asked before it is done, with the number in it."""
    closing = plan.get("closing")
    if closing is None:
        return "Change the networking config?"
    if closing["closes"][1]:
        return f"Close {format_count(closing['closes'], 'tunnel')} of {format_count(closing['agents'], 'agent')}?"
    if closing["opens"]:
        opens = closing["opens"]
        return f"Have {format_count([plan['agents']] * 2, 'agent')} dial {format_count([opens, opens], 'more tunnel')}?"
    return "Change the networking config? It closes no tunnel."


def format_range(numbers: Sequence[int] | CountRange) -> str:
    """A range for a person."""
    low, high = numbers
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def format_count(numbers: Sequence[int] | CountRange, noun: str) -> str:
    """A range of things for a person."""
    return f"{format_range(numbers)} {noun}{'' if numbers[1] == 1 else 's'}"


def compare_with_plan(plan: Mapping[str, Any], tunnel_counts: Mapping[str, int]) -> dict[str, Any]:
    """What happened so far to the agents that were to close or to dial; `now_held` counts the tunnels they have now.

    An agent that is not in it has gone with all it had, which is no closing.
    """
    closing_counts: Mapping[str, int] = plan.get("watched", {})
    present_counts = {agent: tunnel_counts[agent] for agent in closing_counts if agent in tunnel_counts}
    closed_count = sum(max(closing_counts[agent] - tunnel_count, 0) for agent, tunnel_count in present_counts.items())
    low, high = plan["closing"]["closes"]
    difference = closed_count - high if closed_count > high else min(closed_count - low, 0)
    dialing_agents: Mapping[str, Sequence[int]] = plan.get("dialling", {})
    dialed_count = sum(
        min(max(tunnel_counts[agent] - previous_count, 0), missing_count)
        for agent, (previous_count, missing_count) in dialing_agents.items()
        if agent in tunnel_counts
    )
    return {
        "closed": closed_count,
        "gone": len(closing_counts) - len(present_counts) + sum(agent not in tunnel_counts for agent in dialing_agents),
        "difference": difference,
        "foreseen": [low, high],
        "dialled": dialed_count,
        "to_dial": dial_count_of(plan),
    }


def compared_agents_of(plan: Mapping[str, Any]) -> frozenset[str]:
    """The agents that `compare` wants the tunnels of."""
    return frozenset({*plan.get("watched", {}), *plan.get("dialling", {})})


def dial_count_of(plan: Mapping[str, Any]) -> int:
    """How many tunnels the agents that are watched for it dial."""
    return sum(missing_count for _, missing_count in plan.get("dialling", {}).values())


def has_tunnel_moves(plan: Mapping[str, Any]) -> bool:
    """Whether tunnels close or are dialled, so that there is something to wait for."""
    return plan.get("closing", {}).get("closes", [0, 0])[1] > 0 or bool(plan.get("dialling"))


def is_done(outcome: Mapping[str, Any]) -> bool:
    """Whether all that was foreseen has happened."""
    return bool(outcome["closed"] >= outcome["foreseen"][1] and outcome["dialled"] >= outcome["to_dial"])


def end_seconds_of(plan: Mapping[str, Any]) -> float:
    """Seconds after the change by which all is over that was foreseen; 0 when nothing was."""
    steps = plan.get("closing", {}).get("steps", ())
    latest = [float(step["latest"]) for step in steps] + ([_DIAL_TIMEOUT_SECONDS] if plan.get("dialling") else [])
    return max(latest, default=0.0)


def _closing_notes(
    before: NetworkingConfig, after: NetworkingConfig, plan: ClosingPlan, fleet: FleetSnapshot
) -> list[str]:
    notes = []
    if after.connection_count == 0 and plan.rule is ClosingRule.RFD:
        notes.append(
            "In agent mesh every agent wants a tunnel to every proxy, so none is ever one too many: this rule closes "
            "only tunnels to expired proxies."
        )
    if after.connection_count == 0 and plan.rule is ClosingRule.UPSTREAM:
        notes.append(
            "In agent mesh no tunnel is ever one too many, and upstream's rule closes none to expired proxies: it has "
            "no effect without proxy peering."
        )
    if plan.rule is ClosingRule.UPSTREAM and plan.closes[1]:
        notes.append(
            "Upstream's rule takes the slowest tunnel, by round-trip times that only the agents know: which proxy "
            "loses how many is a range."
        )
    if plan.rule is ClosingRule.NONE and after.connection_count and _lowers_connection_count(before, after):
        notes.append(
            "Fewer tunnels are wanted, but no rule is on that closes any: those that are too many stay."
        )
    if plan.carrying[1]:
        notes.append(
            "A tunnel that carries user connections takes nobody new and ends with the last of them."
        )
    if plan.opens:
        notes.append(f"The load balancer decides which proxies the {plan.opens:,} new tunnels go to.")
    if any(proxy.is_uncertain for proxy in fleet.proxies):
        names = ", ".join(proxy.name for proxy in fleet.proxies if proxy.is_uncertain)
        notes.append(
            f"Not well now: {names}. Whether agents take it for expired when the time comes makes a range."
        )
    if plan.too_old:
        notes.append(
            f"Too old to know the rule, though they have too many: {plan.too_old} agents. Theirs stay."
        )
    if plan.closes[1]:
        notes.append("What has closed cannot be reopened by taking the change back.")
    return notes


def _lowers_connection_count(before: NetworkingConfig, after: NetworkingConfig) -> bool:
    return before.connection_count == 0 or after.connection_count < before.connection_count


def _ping_note(before: NetworkingConfig, after: NetworkingConfig) -> str:
    def format_detection_time(config: NetworkingConfig) -> str:
        return durations.format_seconds(config.keep_alive_interval * config.keep_alive_count_max)

    def format_interval(config: NetworkingConfig) -> str:
        return durations.format_seconds(config.keep_alive_interval)

    return (
        f"A half-open tunnel is noticed after {format_detection_time(after)}, now after {format_detection_time(before)}; "
        f"each tunnel is pinged every {format_interval(after)}, now every {format_interval(before)}."
    )


def describe_outcome(outcome: Mapping[str, Any]) -> str:
    """What happened beside what was foreseen, as `compare` has it."""
    expected_range, dialed_count, expected_dials = outcome["foreseen"], outcome["dialled"], outcome["to_dial"]
    parts = []
    if expected_range[1] or not expected_dials:
        comparison = f"foreseen: {format_range(expected_range)}" if outcome["difference"] else "as foreseen"
        parts.append(f"{format_count([outcome['closed']] * 2, 'tunnel')} closed, {comparison}")
    if expected_dials:
        comparison = f"foreseen: {expected_dials:,}" if dialed_count != expected_dials else "as foreseen"
        parts.append(f"{format_count([dialed_count] * 2, 'tunnel')} dialled, {comparison}")
    return "; ".join(parts)
