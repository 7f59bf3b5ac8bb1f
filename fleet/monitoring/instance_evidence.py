"""What the state, the destination health and the drain of an instance were concluded from, for the history.

As far as sentences and predictions name it, so that a past moment explains an instance in the words of that moment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from fleet.protocol.destination.health import Health, HealthReason, ProbeOutcome
from fleet.vocabulary.error_texts import summarize_error
from fleet.vocabulary.instances import InstanceFacts, InstanceState, ServingStatus

#: Maximum characters of a text that an instance reports.
_MAX_TEXT_LENGTH = 300
#: Most different texts that are kept decoded.
_CACHE_SIZE = 4096


@dataclass(frozen=True, slots=True)
class InstanceEvidence:
    """Evidence of one instance. Times are seconds since the epoch; what is unknown or does not apply is empty."""

    #: Last response of grpc.health.v1, and last HTTP status code of `/readyz`.
    serving: int | None = None
    readyz: int | None = None
    #: Why it is not serving, as a clause.
    serving_problem: str = ""
    #: Errors of the last attempts that failed, newest first, in a few words: of an instance that does not respond.
    errors: tuple[str, ...] = ()
    #: Time of the newest attempt, of an instance whose state is unknown.
    polled_at: float | None = None
    #: Start of the problem, and expiry of the resource, of a failing instance.
    sick_since: float | None = None
    expires_at: float | None = None
    #: Of a proxy: id of the auth that received its newest heartbeat.
    heartbeat_auth: str = ""
    #: Reason and start of the destination health; the instance reported itself as degraded.
    health_reason: str = ""
    health_since: float | None = None
    is_self_reported: bool = False
    #: Why the instance reports itself as degraded; None when it does not.
    degraded_reason: str | None = None
    #: Reason and first sighting of a drain.
    drain_reason: str | None = None
    drain_since: float | None = None

    def to_json(self) -> str:
        """Return the fields that are not empty as JSON."""
        return _encode(self)

    @classmethod
    def from_json(cls, text: str) -> InstanceEvidence:
        """Return the evidence from JSON, without fields of other versions."""
        return _decode(text)

    @property
    def serving_status(self) -> ServingStatus | None:
        """Return the last response of grpc.health.v1."""
        return None if self.serving is None else ServingStatus(self.serving)


_FIELD_NAMES = frozenset(field.name for field in fields(InstanceEvidence))


@lru_cache(_CACHE_SIZE)
def _encode(evidence: InstanceEvidence) -> str:
    document = {
        field.name: content
        for field in fields(evidence)
        if (content := getattr(evidence, field.name)) != field.default
    }
    return json.dumps(document, separators=(",", ":"))


@lru_cache(_CACHE_SIZE)
def _decode(text: str) -> InstanceEvidence:
    document: dict[str, Any] = json.loads(text) if text else {}
    present_fields = {name: value for name, value in document.items() if name in _FIELD_NAMES}
    if "errors" in present_fields:
        present_fields["errors"] = tuple(present_fields["errors"])
    return InstanceEvidence(**present_fields)


def evidence_of_instance(
    facts: InstanceFacts, state: InstanceState, health: Health, *, sick_since: float | None, is_silent: bool
) -> InstanceEvidence:
    """Return the evidence for the state and health that were concluded from facts.

    `sick_since`: start of its problem; `is_silent`: its last two attempts failed.
    """
    watch = facts.watch
    is_failing, is_unknown = sick_since is not None, state is InstanceState.UNKNOWN
    failed_attempts = facts.attempts[:2] if is_silent else facts.attempts[:1] if is_unknown else ()
    has_health = health is not Health.UNKNOWN
    is_degraded = health is Health.DEGRADED and watch.degraded_reason is not None
    return InstanceEvidence(
        serving=None if facts.serving is None else int(facts.serving),
        readyz=facts.readyz,
        serving_problem=facts.serving_problem[:_MAX_TEXT_LENGTH],
        errors=tuple(summarize_error(attempt.error) for attempt in failed_attempts if not attempt.ok),
        polled_at=facts.attempts[0].at if is_unknown and facts.attempts else None,
        sick_since=sick_since,
        expires_at=facts.expires_at if is_failing else None,
        heartbeat_auth=facts.heartbeat_auth,
        health_reason=watch.active.signal.reason.name if has_health else "",
        health_since=watch.active.signal.changed_at if has_health else None,
        is_self_reported=is_degraded and watch.active.streak_outcome in (ProbeOutcome.DEGRADED, None),
        degraded_reason=None if watch.degraded_reason is None else watch.degraded_reason[:_MAX_TEXT_LENGTH],
        drain_reason=None if watch.drain_request is None else watch.drain_request.reason[:_MAX_TEXT_LENGTH],
        drain_since=None if watch.drain_request is None else watch.drain_request.requested_at,
    )


def health_reason_of(evidence: InstanceEvidence) -> HealthReason:
    """Return the reason of the destination health; one of a later version counts as none."""
    return HealthReason.__members__.get(evidence.health_reason, HealthReason.NOTHING_SEEN)
