"""Every vocabulary of what happens, read from the program itself: docs/reference/tests.md, "Producers".

A flow test makes each member happen, and says so: `tests/flow/producers.py`.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.vocabulary.actions import AUDITED_STATES, AuditAction, ChangeStep, RequestOrigin
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.incidents import CauseKind, TimelineKind
from fleet.vocabulary.instances import InstanceKind, InstanceState
from fleet.vocabulary.verdicts import Reason, Recovery, State
from tests.meta.house import ROOT, tracked_paths

_METRIC_CLASSES = (
    "Counter|Gauge|Histogram|Summary|GaugeMetricFamily|CounterMetricFamily|HistogramMetricFamily"
    "|TunnelCountCollector|AgentAuthCollector"
)
_METRIC = re.compile(rf"\b(?:{_METRIC_CLASSES})\(\s*\"([a-z0-9_]+)\"")
#: Where what browsers are told of is published, and where the frames of the live link are made.
_LINK = ("fleet/monitoring/publish.py", "dashboards/live/hub.py", "dashboards/live/consumers.py")
_EVENT = re.compile(r'\{\s*"type": "(\w+)"')


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A set of words, of which the running system must produce each."""

    #: The keyword of `produced` and of the sources of evidence.
    name: str
    members: frozenset[str]
    #: Where a member is declared.
    declaration: str
    #: The source of evidence that has it: an expression for the first argument of `produced`.
    evidence: str


@functools.cache
def vocabularies() -> dict[str, Vocabulary]:
    """Return every vocabulary by its name."""
    history, now = "Database(home)", "Record(reader)"
    all_vocabularies = (
        _of("verdicts", [member.slug for member in State], "fleet/vocabulary/verdicts.py: State", history),
        _of("reasons", [member.slug for member in Reason], "fleet/vocabulary/verdicts.py: Reason", history),
        _of(
            "recoveries",
            [member.slug for member in Recovery],
            "fleet/vocabulary/verdicts.py: Recovery",
            history,
        ),
        _of("causes", [*InstanceKind, "backend"], "fleet/vocabulary/instances.py: InstanceKind", history),
        _of(
            "instance_states",
            [s.slug for s in InstanceState],
            "fleet/vocabulary/instances.py: InstanceState",
            now,
        ),
        _of("incident_causes", CauseKind, "fleet/vocabulary/incidents.py: CauseKind", history),
        _of("timeline", TimelineKind, "fleet/vocabulary/incidents.py: TimelineKind", history),
        _of(
            "actions",
            [*AuditAction, *RequestOrigin],
            "fleet/vocabulary/actions.py: AuditAction, RequestOrigin",
            history,
        ),
        _of("change_kinds", ChangeKind, "fleet/vocabulary/changes.py: ChangeKind", history),
        _of(
            "change_words", [*ChangeStep, *AUDITED_STATES], "fleet/vocabulary/actions.py: ChangeStep", history
        ),
        _of("events", _events(), ", ".join(_LINK), "Frames(received)"),
        _of("metrics", declared_metrics(), "a metric class of prometheus_client", "Pages(texts)"),
    )
    return {member.name: member for member in all_vocabularies}


def declared_metrics() -> Counter[str]:
    """Count the declarations of each metric in the program."""
    return Counter(
        name
        for path in tracked_paths()
        if path.startswith(("fleet/", "dashboards/")) and path.endswith(".py")
        for name in _METRIC.findall((ROOT / path).read_text(encoding="utf-8"))
    )


def _events() -> set[str]:
    """Return the types of what is published and of what sockets send."""
    return {name for path in _LINK for name in _EVENT.findall((ROOT / path).read_text(encoding="utf-8"))}


def _of(name: str, members: Iterable[str], declaration: str, evidence: str) -> Vocabulary:
    return Vocabulary(name, frozenset(map(str, members)), declaration, evidence)
