"""Words that headlines, incidents and notifications share: numbers of agents, times, predicted recovery. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from fleet.vocabulary.incidents import Cause, CauseKind

#: Sentences about the recovery of the affected agents.
NO_RECOVERY = "No automatic recovery."
UNKNOWN_RECOVERY = "The recovery time is not known."
#: A shorter remaining time is not named.
_MIN_NAMED_SECONDS = 10
#: Limits in seconds, each with the seconds of the unit below it, the step of its numbers, and its name.
_REMAINING_UNITS = ((95, 1, 10, "s"), (5_700, 60, 1, "min"), (math.inf, 3600, 1, "h"))


@dataclass(frozen=True, slots=True)
class AffectedCounts:
    """Number of agents that a failure strands, and that it puts at risk."""

    stranded_count: int = 0
    at_risk_count: int = 0

    @property
    def total(self) -> int:
        """Return the number of affected agents."""
        return self.stranded_count + self.at_risk_count


def format_since(at: float, now: float) -> str:
    """Return a start to the minute, `10:14 UTC`; with its date if that is not today's."""
    return _format_minute(datetime.fromtimestamp(at, UTC), now)


def format_by(at: float, now: float) -> str:
    """Return a latest time as the first full minute after it, `10:31 UTC`; with its date if that is not today's."""
    return _format_minute(datetime.fromtimestamp(math.ceil(at / 60) * 60, UTC), now)


def format_apart(at: float, earlier: float | None, now: float) -> str:
    """Return a time to the minute, or to the second if `earlier`, which the same text names, is in that minute."""
    moment = datetime.fromtimestamp(at, UTC)
    is_same_minute = earlier is not None and at // 60 == earlier // 60
    return f"{moment:%H:%M:%S} UTC" if is_same_minute else _format_minute(moment, now)


def format_remaining(seconds: float) -> str:
    """Return the time until a moment, as `formatRemaining` of headline.js does: `in about 50 s`, `in about 12 min`.

    Empty for a moment that has passed.
    """
    if seconds <= 0:
        return ""
    if seconds < _MIN_NAMED_SECONDS:
        return f"in less than {_MIN_NAMED_SECONDS} s"
    divisor, step, unit = next(
        (divisor, step, unit) for limit, divisor, step, unit in _REMAINING_UNITS if seconds < limit
    )
    return f"in about {math.floor(seconds / divisor / step + 0.5) * step} {unit}"


def describe_remaining(strands_at: float | None, recovers_at: float | None, at: float) -> str:
    """Return how long it is from a moment to a deadline and to a recovery; empty without both.

    `First stranding in about 50 s. Recovery in about 12 min.`
    """
    parts = [
        f"{subject} {format_remaining(moment - at) or 'is due'}."
        for subject, moment in (("First stranding", strands_at), ("Recovery", recovers_at))
        if moment is not None
    ]
    return " ".join(parts)


def find_next_midnight(now: float) -> float:
    """Return when today ends in UTC: from then on, texts have the date of today's times."""
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (today + timedelta(days=1)).timestamp()


def _format_minute(moment: datetime, now: float) -> str:
    is_today = moment.date() == datetime.fromtimestamp(now, UTC).date()
    return f"{moment:%H:%M} UTC" if is_today else f"{moment:%Y-%m-%d %H:%M} UTC"


def format_agents(count: int) -> str:
    """Return a number of agents: `1,200 agents`."""
    return f"{count:,} agent{'' if count == 1 else 's'}"


def label_of_agents(*, affected_count: int, is_moved: bool) -> str:
    """Return the label of the names of agents. `is_moved`: another incident affects them now."""
    if affected_count:
        return "Affected agents"
    return "Agents at the peak" if is_moved else "Previously affected agents"


def describe_counts(
    counts: AffectedCounts, *, agent_set: str = "", is_past: bool = False, since_text: str = ""
) -> str:
    """Return `12 agents stranded and 55 at risk`; `agent_set`: only agents of that set are counted.

    `since_text`: start of the first state, ` since 10:14 UTC`: `12 agents stranded since 10:14 UTC and 55 at risk`.
    """
    parts: list[str] = []
    for state_text, count in (("stranded", counts.stranded_count), ("at risk", counts.at_risk_count)):
        if not count:
            continue
        if parts:
            parts.append(f"{count:,} {state_text}")
            continue
        agents = format_agents(count).replace(" ", f" {agent_set} ", 1) if agent_set else format_agents(count)
        verb = ("was " if count == 1 else "were ") if is_past else ""
        parts.append(f"{agents} {verb}{state_text}{since_text}")
    return " and ".join(parts)


def describe_recovery(
    cause: Cause, recovers_at: float | None, now: float, *, is_stuck: bool, is_recovering: bool = False
) -> str:
    """Return whether the agents of a cause recover automatically, and by when, as one sentence.

    `is_stuck`: some of them recover only after the cause; `recovers_at`: when the last of the others has recovered.
    `is_recovering`: the cause reports that it recovers now.
    """
    latest = "" if recovers_at is None else format_by(recovers_at, now)
    name = _name_in_sentence(cause)
    if not is_stuck:
        return f"The agents recover automatically by {latest}." if latest else UNKNOWN_RECOVERY
    if latest:
        return f"Some agents recover automatically by {latest}, the others only after {name or 'the cause'}."
    if is_recovering and name:
        return f"The agents recover when {name} has recovered."
    # A campaign may move the agents of an auth: the actions beside the sentence say what helps.
    must_recover = name and cause.kind is not CauseKind.AUTH
    return f"No automatic recovery: {name} must recover first." if must_recover else NO_RECOVERY


def _name_in_sentence(cause: Cause) -> str:
    if cause.kind is CauseKind.BACKEND:
        return "the auth backend"
    return "" if cause.kind in (CauseKind.AGENTS, CauseKind.FLEET) else cause.name
