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
    Range,
    Rule,
    SeenAgent,
    SeenProxy,
    foresee,
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
_DIALLED_WITHIN = 60.0
#: What Refloat's own agents and proxies follow; all else is kept and served for Teleport's programs.
FOLLOWED = TUNNEL_FIELDS | _PING_FIELDS


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is seen of a fleet when a plan is made."""

    agents: tuple[SeenAgent, ...]
    proxies: tuple[SeenProxy, ...]
    #: Tunnels by proxy id.
    held: Mapping[str, int]
    #: All agents that are not retired, also those with one tunnel.
    size: int
    #: When the newest round concluded, and how old that is, seconds.
    as_of: float
    age: float


def moves_tunnels(before: NetworkingConfig, after: NetworkingConfig) -> bool:
    """Whether a change makes agents dial or close."""
    return any(field.name in TUNNEL_FIELDS for field, _, _ in rules.differences(before, after))


def plan_of(before: NetworkingConfig, after: NetworkingConfig, fleet: Fleet | None) -> dict[str, Any]:
    """The plan as JSON. `fleet` may be None where tunnels are not moved."""
    before, after = rules.with_defaults(before), rules.with_defaults(after)
    plan: dict[str, Any] = {"notes": [], "agents": 0}
    changed = {field.name for field, _, _ in rules.differences(before, after)}
    if fleet is not None:
        plan |= {"as_of": fleet.as_of, "age": round(fleet.age, 1), "size": fleet.size}
    if changed & TUNNEL_FIELDS:
        assert fleet is not None, "a change that moves tunnels is planned with the fleet in sight"
        foreseen = foresee(before, after, fleet.agents, fleet.proxies, fleet.held)
        plan["closing"] = to_json(foreseen, fleet)
        plan["watched"] = dict(foreseen.watched)
        plan["dialling"] = {agent: list(numbers) for agent, numbers in foreseen.dialling.items()}
        plan["agents"] = len(foreseen.touched)
        plan["rule_before"] = rule_of(before).label
        plan["notes"] += _closing_notes(before, after, foreseen, fleet)
    if changed & _PING_FIELDS:
        plan["agents"] = max(plan["agents"], fleet.size if fleet else 0)
        plan["notes"].append(_ping_note(before, after))
    idle = sorted(changed - FOLLOWED)
    if idle:
        plan["notes"].append(
            f"Refloat's own agents and proxies do nothing with {', '.join(idle)}; Teleport's do."
        )
    plan["question"] = question(plan)
    return plan


def to_json(plan: ClosingPlan, fleet: Fleet) -> dict[str, Any]:
    """The foreseen closings, for people and programs: all of a plan but what names every agent."""
    shown = {field.name: getattr(plan, field.name) for field in fields(plan) if field.repr}
    # As the database keeps it, where tuples are lists.
    kept: dict[str, Any] = json.loads(json.dumps(shown, default=asdict))
    unsure = [proxy.name for proxy in fleet.proxies if proxy.unsure]
    return {**kept, "rule_label": plan.rule.label, "unsure_proxies": unsure}


def question(plan: Mapping[str, Any]) -> str:
    """What is asked before it is done, with the number in it."""
    closing = plan.get("closing")
    if closing is None:
        return "Change the networking config?"
    if closing["closes"][1]:
        return f"Close {counted(closing['closes'], 'tunnel')} of {counted(closing['agents'], 'agent')}?"
    if closing["opens"]:
        opens = closing["opens"]
        return f"Have {counted([plan['agents']] * 2, 'agent')} dial {counted([opens, opens], 'more tunnel')}?"
    return "Change the networking config? It closes no tunnel."


def said(numbers: Sequence[int] | Range) -> str:
    """A range for a person."""
    low, high = numbers
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def counted(numbers: Sequence[int] | Range, word: str) -> str:
    """A range of things for a person."""
    return f"{said(numbers)} {word}{'' if numbers[1] == 1 else 's'}"


def compare(plan: Mapping[str, Any], now_held: Mapping[str, int]) -> dict[str, Any]:
    """What happened so far to the agents that were to close or to dial; `now_held` counts the tunnels they have now.

    An agent that is not in it has gone with all it had, which is no closing.
    """
    watched: Mapping[str, int] = plan.get("watched", {})
    present = {agent: now_held[agent] for agent in watched if agent in now_held}
    closed = sum(max(watched[agent] - now, 0) for agent, now in present.items())
    low, high = plan["closing"]["closes"]
    difference = closed - high if closed > high else min(closed - low, 0)
    dialling: Mapping[str, Sequence[int]] = plan.get("dialling", {})
    dialled = sum(
        min(max(now_held[agent] - had, 0), missing)
        for agent, (had, missing) in dialling.items()
        if agent in now_held
    )
    return {
        "closed": closed,
        "gone": len(watched) - len(present) + sum(agent not in now_held for agent in dialling),
        "difference": difference,
        "foreseen": [low, high],
        "dialled": dialled,
        "to_dial": to_dial(plan),
    }


def agents_compared(plan: Mapping[str, Any]) -> frozenset[str]:
    """The agents that `compare` wants the tunnels of."""
    return frozenset({*plan.get("watched", {}), *plan.get("dialling", {})})


def to_dial(plan: Mapping[str, Any]) -> int:
    """How many tunnels the agents that are watched for it dial."""
    return sum(missing for _, missing in plan.get("dialling", {}).values())


def moves(plan: Mapping[str, Any]) -> bool:
    """Whether tunnels close or are dialled, so that there is something to wait for."""
    return plan.get("closing", {}).get("closes", [0, 0])[1] > 0 or bool(plan.get("dialling"))


def is_done(outcome: Mapping[str, Any]) -> bool:
    """Whether all that was foreseen has happened."""
    return bool(outcome["closed"] >= outcome["foreseen"][1] and outcome["dialled"] >= outcome["to_dial"])


def ends_after(plan: Mapping[str, Any]) -> float:
    """Seconds after the change by which all is over that was foreseen; 0 when nothing was."""
    steps = plan.get("closing", {}).get("steps", ())
    latest = [float(step["latest"]) for step in steps] + ([_DIALLED_WITHIN] if plan.get("dialling") else [])
    return max(latest, default=0.0)


def _closing_notes(
    before: NetworkingConfig, after: NetworkingConfig, plan: ClosingPlan, fleet: Fleet
) -> list[str]:
    notes = []
    if after.connection_count == 0 and plan.rule is Rule.RFD:
        notes.append(
            "In agent mesh every agent wants a tunnel to every proxy, so none is ever one too many: this rule closes "
            "only tunnels to expired proxies."
        )
    if after.connection_count == 0 and plan.rule is Rule.UPSTREAM:
        notes.append(
            "In agent mesh no tunnel is ever one too many, and upstream's rule closes none to expired proxies: it has "
            "no effect without proxy peering."
        )
    if plan.rule is Rule.UPSTREAM and plan.closes[1]:
        notes.append(
            "Upstream's rule takes the slowest tunnel, by round-trip times that only the agents know: which proxy "
            "loses how many is a range."
        )
    if plan.rule is Rule.NONE and after.connection_count and _wants_fewer(before, after):
        notes.append(
            "Fewer tunnels are wanted, but no rule is on that closes any: those that are too many stay."
        )
    if plan.carrying[1]:
        notes.append(
            "A tunnel that carries user connections takes nobody new and ends with the last of them."
        )
    if plan.opens:
        notes.append(f"The load balancer decides which proxies the {plan.opens:,} new tunnels go to.")
    if any(proxy.unsure for proxy in fleet.proxies):
        names = ", ".join(proxy.name for proxy in fleet.proxies if proxy.unsure)
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


def _wants_fewer(before: NetworkingConfig, after: NetworkingConfig) -> bool:
    return before.connection_count == 0 or after.connection_count < before.connection_count


def _ping_note(before: NetworkingConfig, after: NetworkingConfig) -> str:
    def patience(config: NetworkingConfig) -> str:
        return durations.format_seconds(config.keep_alive_interval * config.keep_alive_count_max)

    def pings(config: NetworkingConfig) -> str:
        return durations.format_seconds(config.keep_alive_interval)

    return (
        f"A half-open tunnel is noticed after {patience(after)}, now after {patience(before)}; "
        f"each tunnel is pinged every {pings(after)}, now every {pings(before)}."
    )


def outcome_words(outcome: Mapping[str, Any]) -> str:
    """What happened beside what was foreseen, as `compare` has it."""
    foreseen, dialled, more = outcome["foreseen"], outcome["dialled"], outcome["to_dial"]
    parts = []
    if foreseen[1] or not more:
        against = f"foreseen: {said(foreseen)}" if outcome["difference"] else "as foreseen"
        parts.append(f"{counted([outcome['closed']] * 2, 'tunnel')} closed, {against}")
    if more:
        against = f"foreseen: {more:,}" if dialled != more else "as foreseen"
        parts.append(f"{counted([dialled] * 2, 'tunnel')} dialled, {against}")
    return "; ".join(parts)
