"""The Redis record of a cluster: the only place that knows a key. docs/reference/record.md."""

from __future__ import annotations


class StateError(Exception):
    """The record is not usable now; the message says why."""


class StateUnavailableError(StateError):
    """Redis is not reachable or did not respond in time."""


class RecordLostError(StateError):
    """The record has another epoch than expected: it was lost or rebuilt."""
