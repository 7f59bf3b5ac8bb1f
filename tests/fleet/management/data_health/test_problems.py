"""Each rule on facts alone; tests/dashboards/system/data_health/test_views.py reads them from a real Redis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from fleet.management.data_health import problems as rules
from fleet.management.data_health.facts import (
    ClockRow,
    ClocksPart,
    DataProblem,
    DataVerdict,
    EvidencePart,
    FeedRow,
    FeedsPart,
    QueueRow,
    QueuesPart,
    RoundsPart,
    ServicesPart,
    TargetRow,
    TargetsPart,
    WorkerRow,
    WorkersPart,
)
from fleet.management.doctor.findings import error, ok, skip, warning
from fleet.monitoring.state.poll_log import FeedReset, FeedResetReason, RoundEntry
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind

_NOW = 1_700_000_000.0
_WORKER = WorkerRow("polls", "host-a", 1, "0.1.0", age=1.0, is_alive=True, clock_offset=0.0)
_QUEUES = QueuesPart(
    queues=(QueueRow("polls", 0), QueueRow("actions", 0)), ticked_at=_NOW - 1, schedulers=("gen1@a",)
)
_ROUNDS = RoundsPart(as_of=_NOW - 1)


def _summaries(problems: Iterable[DataProblem]) -> str:
    problems = list(problems)
    assert all(problem.remedy for problem in problems), "every problem says what to do"
    return " ".join(problem.summary for problem in problems)


@pytest.mark.parametrize(
    ("part", "phrase"),
    [
        (_ROUNDS, ""),
        (replace(_ROUNDS, as_of=_NOW - 60), "ended 1 min ago"),
        (replace(_ROUNDS, as_of=None), "No polling round"),
        (replace(_ROUNDS, is_paused=True), "paused"),
        (replace(_ROUNDS, has_addresses=False), "no addresses"),
        (replace(_ROUNDS, is_probe_failing=True), "self-probe"),
        (RoundsPart(error="Redis is not responding"), "cannot be read: Redis is not responding."),
    ],
)
def test_newest_round(part: RoundsPart, phrase: str) -> None:
    """Each of these blinds Refloat."""
    problems = list(rules.find_round_problems(part, "default", _NOW))
    assert all(problem.is_blinding for problem in problems)
    assert phrase in _summaries(problems)
    assert bool(problems) == bool(phrase)


def test_some_late_rounds_are_no_problem() -> None:
    """One in ten."""
    fast = [RoundEntry(number, _NOW - 1, _NOW) for number in range(9)]
    late = [RoundEntry(number, _NOW - 9, _NOW) for number in range(2)]
    few_late = replace(_ROUNDS, rounds=(*fast, late[0]))
    many_late = replace(_ROUNDS, rounds=(*fast, *late))
    assert not list(rules.find_round_problems(few_late, "default", _NOW))
    assert "2 of the last 11 rounds" in _summaries(rules.find_round_problems(many_late, "default", _NOW))


def test_worker_without_tasks_is_not_called_dead() -> None:
    """While the scheduler is idle_queues, only a queue with tasks proves that its worker is dead."""
    silent = WorkersPart(workers=(replace(_WORKER, age=300.0, is_alive=False),))
    idle_queues = replace(_QUEUES, ticked_at=_NOW - 300)
    full = replace(idle_queues, queues=(QueueRow("polls", 3), QueueRow("actions", 0)))
    assert not list(rules.find_worker_problems(silent, idle_queues, _NOW))
    text = _summaries(rules.find_worker_problems(silent, full, _NOW))
    assert "The worker of the queue polls last reported 5 min ago" in text
    assert "actions" not in text
    text = _summaries(rules.find_worker_problems(silent, _QUEUES, _NOW))
    assert "queue actions has not reported in the last 24 h" in text


def test_workers_of_two_versions_and_clocks() -> None:
    workers = tuple(
        replace(_WORKER, queue=queue, version=version, clock_offset=offset)
        for queue, version, offset in (("polls", "0.1.0", -3.0), ("actions", "0.2.0", 0.1))
    )
    text = _summaries(rules.find_worker_problems(WorkersPart(workers=workers), _QUEUES, _NOW))
    assert "0.1.0 and 0.2.0" in text
    assert "on host-a is 3 s behind" in text


@pytest.mark.parametrize(
    ("part", "phrase"),
    [
        (_QUEUES, ""),
        (replace(_QUEUES, queues=(QueueRow("polls", 10, 90.0),)), "10 tasks wait in the queue polls; the oldest"),
        (replace(_QUEUES, ticked_at=_NOW - 120), "last ticked 2 min ago"),
        (replace(_QUEUES, ticked_at=None), "left no trace"),
        (replace(_QUEUES, schedulers=("gen1@a", "gen2@b")), "2 schedulers (beat) are running: gen1@a and gen2@b"),
        (replace(_QUEUES, history_backlog=61), "history of 61 rounds"),
        (QueuesPart(error="gone"), ""),
    ],
)  # fmt: skip
def test_queues(part: QueuesPart, phrase: str) -> None:
    text = _summaries(rules.find_queue_problems(part, _NOW))
    assert phrase in text
    assert bool(text) == bool(phrase)


def _target(number: int, *, is_late: bool = False) -> TargetRow:
    text = "" if is_late else "connection refused"
    return TargetRow(f"id-{number}", f"proxy-{number}", InstanceKind.PROXY, 3.0, text, None, is_late, False)


def test_instances() -> None:
    """Some that fail degrade the data; all of them blind Refloat."""
    failing_part = TargetsPart(count=9, rows=tuple(map(_target, range(5))), failing_count=5)
    (problem,) = rules.find_target_problems(failing_part)
    assert (
        "5 of 9 instances did not respond to the last poll: proxy-0, proxy-1, proxy-2 and 2 more"
        in problem.summary
    )
    assert not problem.is_blinding
    (problem,) = rules.find_target_problems(replace(failing_part, count=5))
    assert problem.is_blinding
    late = TargetsPart(count=9, rows=(_target(1, is_late=True),), late_count=1)
    assert "1 instance of 9 were not polled" in _summaries(rules.find_target_problems(late))
    assert not list(rules.find_target_problems(TargetsPart(count=9)))


def test_clocks() -> None:
    rows = tuple(
        ClockRow("id", f"auth-{n}", InstanceKind.AUTH, offset) for n, offset in ((1, 40.0), (2, -1.0))
    )
    text = _summaries(rules.find_clock_problems(ClocksPart(redis_offset=-5.0, rows=rows)))
    assert "The clock of Redis is 5 s behind" in text
    assert "The clock of auth-1 is 40 s ahead of" in text
    assert not list(rules.find_clock_problems(ClocksPart(redis_offset=1.0, rows=rows[1:])))


def test_feeds() -> None:
    resets = tuple(FeedReset(_NOW, "presence", FeedResetReason.CONFLICT) for _ in range(6))
    text = _summaries(
        rules.find_feed_problems(FeedsPart(resets=resets, stale_feeds=(FeedRow("list of agents", None),)))
    )
    assert "started over 6 times in the last hour; 6 answers were dropped" in text
    assert "The list of agents could not be read" in text
    assert not list(rules.find_feed_problems(FeedsPart(resets=resets[:5])))


def test_evidence() -> None:
    """What a product never has is no problem."""
    reason = (Capability.WATCH, "The role lacks a verb.")
    text = _summaries(
        rules.find_evidence_problems(EvidencePart(found_missing=(reason,), list_notice="Old lists."), "east")
    )
    assert "The role lacks a verb." in text
    assert "Old lists." in text
    assert not list(rules.find_evidence_problems(EvidencePart(declared_missing=(reason,)), "east"))


def test_services() -> None:
    part = ServicesPart(
        findings=(
            ok("redis-version", "Fine."),
            error("redis-memory", "Full.", "Raise it."),
            warning("disk-space", "Low.", "Free it."),
            skip("database-clock", "Not checked."),
        )
    )
    assert _summaries(rules.find_service_problems(part)) == "Full. Low."


def test_verdict() -> None:
    targets = TargetsPart(count=2)
    worse = DataProblem("rounds", True, "Too old.", "Start it.")
    assert rules.conclude((), _ROUNDS, targets, _NOW)[0] is DataVerdict.GOOD
    lesser = replace(worse, is_blinding=False)
    assert rules.conclude((lesser,), _ROUNDS, targets, _NOW)[0] is DataVerdict.DEGRADED
    verdict, sentence = rules.conclude((worse, lesser), _ROUNDS, targets, _NOW)
    assert verdict is DataVerdict.BLIND
    assert sentence.endswith("Too old.")
