"""Periods in which instances were in a state other than OK, from their changes. Pure; times in seconds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from fleet.vocabulary.instances import InstanceState


class SpanKind(Enum):
    """State that the heat strip shows."""

    SILENT = ("silent", InstanceState.SILENT.label)
    UNHEALTHY = ("unhealthy", InstanceState.UNHEALTHY.label)
    EXPIRED = ("expired", InstanceState.EXPIRED.label)
    DEREGISTERED = ("gone", InstanceState.GONE.label)
    DRAINING = ("draining", "draining")

    def __init__(self, slug: str, label: str) -> None:
        self.slug = slug
        #: Name on pages: `not responding`.
        self.label = label


_KINDS_BY_STATE = {kind.slug: kind for kind in SpanKind if kind is not SpanKind.DRAINING}


class StateChange(Protocol):
    """The part of an InstanceChange that spans are made from."""

    @property
    def instance(self) -> str: ...
    @property
    def at(self) -> float: ...
    @property
    def new(self) -> str: ...
    @property
    def is_draining(self) -> bool | None: ...


@dataclass(frozen=True, slots=True)
class InstanceSpan:
    """A period in which an instance was in a state; it may reach beyond the time range."""

    kind: SpanKind
    start: float
    end: float


def spans_of(
    changes: Iterable[StateChange], since: float, until: float
) -> dict[str, tuple[InstanceSpan, ...]]:
    """Return the spans between two times by id of the instance, the oldest first.

    `changes`: of all instances, oldest first; with the last change of each before `since`.
    """
    changes_by_instance: dict[str, list[StateChange]] = defaultdict(list)
    for change in changes:
        changes_by_instance[change.instance].append(change)
    return {
        instance: tuple(
            sorted(
                (
                    span
                    for kind in SpanKind
                    for span in _spans_of_kind(kind, instance_changes, until)
                    if span.end > since and span.start < until
                ),
                key=lambda span: span.start,
            )
        )
        for instance, instance_changes in changes_by_instance.items()
    }


def _spans_of_kind(kind: SpanKind, changes: Sequence[StateChange], until: float) -> Iterable[InstanceSpan]:
    start: float | None = None
    for change in changes:
        is_in_kind = (
            bool(change.is_draining) if kind is SpanKind.DRAINING else _KINDS_BY_STATE.get(change.new) is kind
        )
        if is_in_kind and start is None:
            start = change.at
        elif not is_in_kind and start is not None:
            yield InstanceSpan(kind, start, change.at)
            start = None
    if start is not None:
        yield InstanceSpan(kind, start, max(until, start))
