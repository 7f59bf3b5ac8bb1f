"""A watch in the record: a short document within what is kept of an instance's polls."""

from __future__ import annotations

from typing import Any

from fleet.protocol.destination.health import ActiveHealth, DrainRequest, Health, ProbeOutcome, HealthReason, HealthSignal
from fleet.vocabulary.watch import UNWATCHED, Watch

_LETTERS = {ProbeOutcome.SUCCESS: "S", ProbeOutcome.DEGRADED: "D", ProbeOutcome.FAILURE: "F"}
_PROBES = {letter: probe for probe, letter in _LETTERS.items()}


def pack_watch(watch: Watch) -> dict[str, Any]:
    """The document."""
    active, draining = watch.active, watch.draining
    return {
        "signal": [active.signal.health, active.signal.reason.name, active.signal.at],
        "recent": "".join(_LETTERS[probe] for probe in active.recent),
        "streak": [active.streak, None if active.streak_of is None else _LETTERS[active.streak_of]],
        "probed_at": active.probed_at,
        "address": watch.address,
        "says": watch.says,
        "draining": None if draining is None else [draining.reason, draining.at],
    }


def unpack_watch(document: dict[str, Any] | None) -> Watch:
    """Read it. One that was written by another version begins anew: a few polls make it good."""
    if document is None:
        return UNWATCHED
    try:
        health, reason, at = document["signal"]
        streak, of = document["streak"]
        draining = document["draining"]
        return Watch(
            ActiveHealth(
                signal=HealthSignal(Health(health), HealthReason[reason], at),
                recent=tuple(_PROBES[letter] for letter in document["recent"]),
                streak=streak,
                streak_of=None if of is None else _PROBES[of],
                probed_at=document["probed_at"],
            ),
            address=document["address"],
            says=document["says"],
            draining=None if draining is None else DrainRequest(*draining),
        )
    except (KeyError, TypeError, ValueError):
        return UNWATCHED
