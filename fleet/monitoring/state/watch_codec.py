"""Encoding of a watch in the record: a short document within an instance's polls."""

from __future__ import annotations

from typing import Any

from fleet.protocol.destination.health import (
    ActiveHealth,
    DrainRequest,
    Health,
    HealthReason,
    HealthSignal,
    ProbeOutcome,
)
from fleet.vocabulary.watch import INITIAL_WATCH, InstanceWatch

_LETTER_BY_OUTCOME = {ProbeOutcome.SUCCESS: "S", ProbeOutcome.DEGRADED: "D", ProbeOutcome.FAILURE: "F"}
_OUTCOME_BY_LETTER = {letter: probe for probe, letter in _LETTER_BY_OUTCOME.items()}


def pack_watch(watch: InstanceWatch) -> dict[str, Any]:
    """Return a watch as a document."""
    active, drain_request = watch.active, watch.drain_request
    return {
        "signal": [active.signal.health, active.signal.reason.name, active.signal.changed_at],
        "recent": "".join(_LETTER_BY_OUTCOME[probe] for probe in active.recent_outcomes),
        "streak": [
            active.streak,
            None if active.streak_outcome is None else _LETTER_BY_OUTCOME[active.streak_outcome],
        ],
        "probed_at": active.probed_at,
        "address": watch.address,
        "says": watch.degraded_reason,
        "draining": None if drain_request is None else [drain_request.reason, drain_request.requested_at],
    }


def unpack_watch(document: dict[str, Any] | None) -> InstanceWatch:
    """Return the watch of a document; one from another version starts over, and is right again after a few polls."""
    if document is None:
        return INITIAL_WATCH
    try:
        health, reason, at = document["signal"]
        streak, streak_letter = document["streak"]
        drain_fields = document["draining"]
        return InstanceWatch(
            ActiveHealth(
                signal=HealthSignal(Health(health), HealthReason[reason], at),
                recent_outcomes=tuple(_OUTCOME_BY_LETTER[letter] for letter in document["recent"]),
                streak=streak,
                streak_outcome=None if streak_letter is None else _OUTCOME_BY_LETTER[streak_letter],
                probed_at=document["probed_at"],
            ),
            address=document["address"],
            degraded_reason=document["says"],
            drain_request=None if drain_fields is None else DrainRequest(*drain_fields),
        )
    except (KeyError, TypeError, ValueError):
        return INITIAL_WATCH
