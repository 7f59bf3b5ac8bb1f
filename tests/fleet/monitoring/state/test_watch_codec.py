"""The encoding of watches in the record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet.monitoring.state.watch_codec import pack_watch, unpack_watch
from fleet.protocol.destination.health import RECOMMENDED_SETTINGS, DrainRequest, ProbeOutcome
from fleet.vocabulary.watch import INITIAL_WATCH, InstanceWatch


def test_watch_round_trip() -> None:
    """After several polls, through JSON."""
    watch = INITIAL_WATCH
    for at, probe in enumerate(
        (
            ProbeOutcome.SUCCESS,
            ProbeOutcome.FAILURE,
            ProbeOutcome.FAILURE,
            ProbeOutcome.DEGRADED,
            ProbeOutcome.SUCCESS,
        )
    ):
        assert unpack_watch(json.loads(json.dumps(pack_watch(watch)))) == watch
        active = watch.active.after_probe(probe, 1_000.5 + at, RECOMMENDED_SETTINGS)
        watch = InstanceWatch(
            active, "127.0.0.1:1", "busy", DrainRequest("kernel update", 7.25) if at % 2 else None
        )
    assert unpack_watch(json.loads(json.dumps(pack_watch(watch)))) == watch


@pytest.mark.parametrize(
    "change", [{"signal": ["well", "NOTHING_SEEN", 1.0]}, {"recent": "SX"}, {"streak": 3}, {"draining": [1]}]
)
def test_watch_of_another_version_is_reset(change: dict[str, Any]) -> None:
    """The rest of the record is kept."""
    assert unpack_watch({**pack_watch(INITIAL_WATCH), **change}) == INITIAL_WATCH
    assert unpack_watch({}) == INITIAL_WATCH
    assert unpack_watch(None) is INITIAL_WATCH
