"""From an instance's facts to its state, with a quick rule of its own: docs/verdicts.md, "The state of an instance".

Destination health (the Degraded machine) is another vocabulary and never delays this one.
"""

from __future__ import annotations

from fleet.monitoring.evidence import Timing
from fleet.vocabulary.instances import InstanceFacts, InstanceState, ServingStatus

READY = 200


def instance_state(facts: InstanceFacts, now: float, timing: Timing) -> InstanceState:
    """Conclude the state of one instance; the first rule that matches wins."""
    if facts.gone_at is not None:
        return InstanceState.GONE
    if is_silent(facts, now, timing):
        return InstanceState.SILENT
    # Above unhealthy: an instance cut from its backend is first unhealthy, then expired, and the second is worse,
    # for agents then drop it from their trackers.
    if is_expired(facts, now):
        return InstanceState.EXPIRED
    if not has_responded(facts, now, timing):
        return InstanceState.UNKNOWN
    if _reports_unhealthy(facts, now, timing):
        return InstanceState.UNHEALTHY
    return InstanceState.OK


def is_fresh(at: float | None, now: float, timing: Timing) -> bool:
    """Tell whether something seen at `at` still counts; from an age of exactly `stale_after` on it does not."""
    return at is not None and now - at < timing.stale_after


def is_silent(facts: InstanceFacts, now: float, timing: Timing) -> bool:
    """Tell whether the last two attempts failed, both in one stretch of polling.

    After a pause of our own the failure before it proves nothing of today: one more round decides.
    """
    if len(facts.attempts) < 2 or not is_fresh(facts.attempts[0].at, now, timing):
        return False
    newest, before = facts.attempts[:2]
    return not newest.ok and not before.ok and is_fresh(before.at, newest.at, timing)


def is_expired(facts: InstanceFacts, now: float) -> bool:
    """Tell whether its own resource was seen to have expired.

    With no list answered since, the expiry is a guess: a dead list must not make the whole fleet expire.
    """
    if facts.expires_at is None:
        return False
    seen_until = now if facts.listed_at is None else min(now, facts.listed_at)
    return facts.expires_at <= seen_until


def has_responded(facts: InstanceFacts, now: float, timing: Timing) -> bool:
    """Tell whether it answered anything that still counts; one failed attempt takes nothing back."""
    if any(attempt.ok and is_fresh(attempt.at, now, timing) for attempt in facts.attempts[:2]):
        return True
    return is_fresh(facts.serving_at, now, timing) or is_fresh(facts.readyz_at, now, timing)


def sick_since(facts: InstanceFacts, state: InstanceState, now: float) -> float:
    """Tell when the present sickness began, as well as the facts allow; `now` when they say nothing."""
    if state is InstanceState.GONE and facts.gone_at is not None:
        return facts.gone_at
    if facts.sick_since is not None:
        return facts.sick_since
    if state is InstanceState.SILENT:
        return facts.attempts[1].at
    if state is InstanceState.EXPIRED and facts.expires_at is not None:
        return facts.expires_at
    return now


def instance_sentence(facts: InstanceFacts, state: InstanceState, now: float, cause_clause: str = "") -> str:
    """Say in one sentence why an instance is not ok; empty when it is.

    `cause_clause`: what it suffers from when that is not itself, as a clause.
    """
    name = facts.name
    if state is InstanceState.OK:
        return ""
    if state is InstanceState.GONE:
        return f"{name} deregistered itself."
    if state is InstanceState.SILENT:
        error = next((attempt.error for attempt in facts.attempts if attempt.error), "")
        return f"{name} does not answer: the last two attempts failed" + (f" ({error})." if error else ".")
    if state is InstanceState.EXPIRED:
        return f"{name} expired: {cause_clause or 'no heartbeat of its own reached the backend in time'}."
    if state is InstanceState.UNHEALTHY:
        return f"{name} answers, but {_complaint(facts)}" + (f": {cause_clause}." if cause_clause else ".")
    if not facts.attempts:
        return f"{name} was not polled yet."
    if not facts.attempts[0].ok and now - facts.attempts[0].at < Timing().stale_after:
        return f"{name} did not answer the last attempt; one more decides."
    return f"{name} was not polled lately."


def _complaint(facts: InstanceFacts) -> str:
    complaints = []
    if facts.serving is ServingStatus.NOT_SERVING:
        complaints.append("says NOT_SERVING")
    if facts.readyz is not None and facts.readyz != READY:
        complaints.append(f"its /readyz is {facts.readyz}")
    return " and ".join(complaints) or "is not well"


def _reports_unhealthy(facts: InstanceFacts, now: float, timing: Timing) -> bool:
    # Only NOT_SERVING: an old server without the health service, or one that does not know the name asked for,
    # has not called itself sick. An answer without a time is taken as of the newest attempt.
    not_serving = facts.serving is ServingStatus.NOT_SERVING and _is_current(facts.serving_at, now, timing)
    not_ready = facts.readyz is not None and facts.readyz != READY and _is_current(facts.readyz_at, now, timing)
    return not_serving or not_ready


def _is_current(at: float | None, now: float, timing: Timing) -> bool:
    return at is None or is_fresh(at, now, timing)
