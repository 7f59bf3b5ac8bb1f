"""The state of an instance, from its facts by a quick rule: docs/reference/verdicts.md, "Instance states".

Destination health (the Degraded state machine) is separate and never delays this state.
"""

from __future__ import annotations

from fleet.monitoring.evidence import Timing
from fleet.vocabulary.error_texts import summarize_error
from fleet.vocabulary.instances import InstanceFacts, InstanceState, ServingStatus

READY_CODE = 200
_NOT_SERVING = "reports NOT_SERVING"


def instance_state(facts: InstanceFacts, now: float, timing: Timing) -> InstanceState:
    """Return the state of one instance; the first rule that matches wins."""
    if facts.gone_at is not None:
        return InstanceState.GONE
    if is_silent(facts, now, timing):
        return InstanceState.SILENT
    # Before unhealthy: an instance without its backend is first unhealthy, then expired, which is worse: agents then
    # drop it from their trackers.
    if is_expired(facts, now):
        return InstanceState.EXPIRED
    if not has_responded(facts, now, timing):
        return InstanceState.OK if _is_only_listed(facts, now, timing) else InstanceState.UNKNOWN
    if _reports_unhealthy(facts, now, timing):
        return InstanceState.UNHEALTHY
    return InstanceState.OK


def is_fresh(at: float | None, now: float, timing: Timing) -> bool:
    """Return whether data from `at` is younger than `stale_after`."""
    return at is not None and now - at < timing.stale_after


def is_silent(facts: InstanceFacts, now: float, timing: Timing) -> bool:
    """Return whether the last two attempts failed without a gap in polling between them.

    A failure before a pause of Refloat's polling proves nothing: the next round decides.
    """
    if len(facts.attempts) < 2 or not is_fresh(facts.attempts[0].at, now, timing):
        return False
    newest, before = facts.attempts[:2]
    return not newest.ok and not before.ok and is_fresh(before.at, newest.at, timing)


def is_expired(facts: InstanceFacts, now: float) -> bool:
    """Return whether the instance's own resource was observed to have expired.

    Without a newer list the expiry is a guess: a list that fails must not make the whole fleet expire.
    """
    if facts.expires_at is None:
        return False
    seen_until = now if facts.listed_at is None else min(now, facts.listed_at)
    return facts.expires_at <= seen_until


def _is_only_listed(facts: InstanceFacts, now: float, timing: Timing) -> bool:
    """Return whether Refloat has no address of an instance, but an unexpired resource in a recent list.

    Also with a diag address: until it responds, or two attempts fail, the list counts.
    """
    return not facts.address and facts.expires_at is not None and is_fresh(facts.listed_at, now, timing)


def has_responded(facts: InstanceFacts, now: float, timing: Timing) -> bool:
    """Return whether a recent poll got a response; one failed attempt does not change that."""
    if any(attempt.ok and is_fresh(attempt.at, now, timing) for attempt in facts.attempts[:2]):
        return True
    return is_fresh(facts.serving_at, now, timing) or is_fresh(facts.readyz_at, now, timing)


def sick_since_of(facts: InstanceFacts, state: InstanceState, now: float) -> float:
    """Return when the present problem began, as far as the facts allow; `now` when they do not tell."""
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
    """Return in one sentence why an instance is not OK; empty when it is.

    `cause_clause`: the cause when that is another instance or the backend, as a clause.
    """
    name = facts.name
    if state is InstanceState.OK:
        return ""
    if state is InstanceState.GONE:
        return f"{name} was deregistered."
    if state is InstanceState.SILENT:
        error = summarize_error(facts.last_error)
        return f"{name} is not responding: the last two attempts failed" + (f" ({error})." if error else ".")
    if state is InstanceState.EXPIRED:
        reason = cause_clause or _reason_of_expiry(facts)
        return f"{name} did not renew its heartbeat in time" + (f": {reason}." if reason else ".")
    if state is InstanceState.UNHEALTHY:
        return f"{name} responds, but {_complaint(facts) or 'is unhealthy'}" + (
            f": {cause_clause}." if cause_clause else "."
        )
    if not facts.attempts:
        return f"{name} has not been polled yet."
    if not facts.attempts[0].ok and now - facts.attempts[0].at < Timing().stale_after:
        return f"{name} did not respond to the last attempt; the next poll decides."
    return f"{name} has not been polled recently."


def _complaint(facts: InstanceFacts) -> str:
    complaints = []
    if facts.serving is ServingStatus.NOT_SERVING:
        complaints.append(facts.serving_problem or _NOT_SERVING)
    if facts.readyz is not None and facts.readyz != READY_CODE:
        complaints.append(f"/readyz returns {facts.readyz}")
    return " and ".join(complaints)


def _reason_of_expiry(facts: InstanceFacts) -> str:
    """Return what an expired instance reports, as a clause; empty if nothing, or if it does not respond."""
    complaint = _complaint(facts) if facts.attempts and facts.attempts[0].ok else ""
    return complaint.replace(_NOT_SERVING, f"it {_NOT_SERVING}")


def _reports_unhealthy(facts: InstanceFacts, now: float, timing: Timing) -> bool:
    # Only NOT_SERVING: an old server without the health service, or without the requested service name, has not
    # reported a problem. A response without a time counts as one of the newest attempt.
    not_serving = facts.serving is ServingStatus.NOT_SERVING and _is_current(facts.serving_at, now, timing)
    not_ready = (
        facts.readyz is not None and facts.readyz != READY_CODE and _is_current(facts.readyz_at, now, timing)
    )
    return not_serving or not_ready


def _is_current(at: float | None, now: float, timing: Timing) -> bool:
    return at is None or is_fresh(at, now, timing)
