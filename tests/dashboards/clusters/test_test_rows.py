from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.clusters.test_rows import make_view
from fleet.clusters.test_report import ConnectionTestReport, ConnectionTestStep, StepName, StepVerdict

_NOW = 1000.0
_REQUESTED = ConnectionTestReport("1", "a", _NOW)
_STEP = ConnectionTestStep(StepName.RESOLVE, StepVerdict.OK, "1 address.")
_STARTED = replace(_REQUESTED, started_at=_NOW, steps=(_STEP,))


def test_steps_end_run_and_follow() -> None:
    """In their order: one that ended, one that runs, the others pending."""
    view = make_view(_STARTED, _NOW)
    assert view is not None
    assert view.is_running
    assert [row.state for row in view.steps] == ["ok", "running", *["pending"] * (len(StepName) - 2)]
    assert view.sentence == f"Testing: 1 of {len(StepName)} steps…"


def test_no_step_runs_before_a_worker_starts_or_after_the_end() -> None:
    for report in (_REQUESTED, replace(_STARTED, ended_at=_NOW)):
        view = make_view(report, _NOW)
        assert view is not None
        assert "running" not in [row.state for row in view.steps]


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        ([StepVerdict.OK], "Refloat can monitor this cluster."),
        ([StepVerdict.WARNING, StepVerdict.WARNING], "Refloat can monitor this cluster, with 2 warnings."),
        (
            [StepVerdict.WARNING, StepVerdict.FAILED],
            "1 step failed. Solve the first one first: later ones often follow from it.",
        ),
    ],
)
def test_result(verdicts: list[StepVerdict], sentence: str) -> None:
    steps = tuple(
        replace(_STEP, name=name, verdict=verdict) for name, verdict in zip(StepName, verdicts, strict=False)
    )
    view = make_view(replace(_STARTED, steps=steps, ended_at=_NOW), _NOW)
    assert view is not None
    assert view.sentence == sentence


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (_REQUESTED, "No worker started the test within 30 s."),
        (_STARTED, "The test did not end: its worker stopped."),
    ],
)
def test_lost_test_failed(report: ConnectionTestReport, sentence: str) -> None:
    """It says what to do, and does not wait any more."""
    view = make_view(report, _NOW + 1000)
    assert view is not None
    assert (view.verdict, view.is_running, view.sentence) == (StepVerdict.FAILED, False, sentence)
    assert "workers" in view.remedy


def test_no_test() -> None:
    assert make_view(None, _NOW) is None
