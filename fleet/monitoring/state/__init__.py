"""The Redis record of a cluster: the only place that knows a key. docs/record.md."""

from __future__ import annotations


class StateError(Exception):
    """The record cannot be used now; the sentence says why."""


class StateUnavailableError(StateError):
    """Redis cannot be reached, or did not answer in time."""


class RecordLostError(StateError):
    """The record has another epoch than the one worked on: it was lost, or rebuilt by somebody else."""
