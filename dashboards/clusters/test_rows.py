"""The newest connection test of a cluster as rows of a page: the steps that ended, that runs, and that follow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dashboards.shared import presenters
from fleet.clusters.test_report import ConnectionTestReport, StepName, StepVerdict

#: State of a step that has no verdict yet.
_RUNNING, _PENDING = ("running", "Running…"), ("pending", "Pending")


@dataclass(frozen=True, slots=True)
class TestStepRow:
    """A step. `state`: the slug of its verdict, `running` or `pending`, with its label."""

    __test__ = False  # no test class, whatever its name

    label: str
    state: str
    state_label: str
    text: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class TestView:
    """A connection test. `sentence`: its result so far; `remedy`: what to do if it did not run."""

    __test__ = False  # no test class, whatever its name

    steps: list[TestStepRow]
    is_running: bool
    verdict: StepVerdict
    sentence: str
    remedy: str
    requested_at: datetime | None
    age_ms: int | None


def make_view(report: ConnectionTestReport | None, now: float) -> TestView | None:
    """Return the view of a test; None without one. `now`: seconds since the epoch."""
    if report is None:
        return None
    is_running, is_lost = report.is_running(now), report.is_lost(now)
    finished_steps = {step.name: step for step in report.steps}
    steps = [
        TestStepRow(step.label, step.verdict.value, step.verdict.label, step.text, step.remedy)
        if (step := finished_steps.get(name)) is not None
        else TestStepRow(name.label, *_state_of_pending(report, name, is_running=is_running))
        for name in report.step_names
    ]
    return TestView(
        steps,
        is_running,
        StepVerdict.FAILED if is_lost else report.verdict,
        _describe(report, is_running=is_running, is_lost=is_lost),
        "Start the workers, or read their log: refloat doctor names what is wrong with them."
        if is_lost
        else "",
        presenters.to_moment_or_none(report.requested_at),
        presenters.age_ms_of(report.requested_at, now),
    )


def _state_of_pending(report: ConnectionTestReport, name: StepName, *, is_running: bool) -> tuple[str, str]:
    is_next = report.started_at is not None and report.pending_steps[0] is name
    return _RUNNING if is_running and is_next else _PENDING


def _describe(report: ConnectionTestReport, *, is_running: bool, is_lost: bool) -> str:
    if is_lost:
        return (
            "No worker started the test within 30 s."
            if report.started_at is None
            else "The test did not end: its worker stopped."
        )
    if is_running:
        return (
            "Waiting for a worker…"
            if report.started_at is None
            else f"Testing: {len(report.steps)} of {len(report.step_names)} steps…"
        )
    failure_count = sum(step.verdict is StepVerdict.FAILED for step in report.steps)
    warning_count = sum(step.verdict is StepVerdict.WARNING for step in report.steps)
    if failure_count:
        return f"{_count(failure_count, 'step')} failed. Solve the first one first: later ones often follow from it."
    if warning_count:
        return f"Refloat can monitor this cluster, with {_count(warning_count, 'warning')}."
    return "Refloat can monitor this cluster."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
