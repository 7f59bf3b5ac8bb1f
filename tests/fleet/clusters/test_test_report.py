"""Reports of connection tests: what is pending, what failed first, and JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from fleet.clusters.test_report import (
    ConnectionTestReport,
    ConnectionTestStep,
    StepName,
    StepVerdict,
    pack_report,
    unpack_report,
)

_STEPS = (
    ConnectionTestStep(StepName.RESOLVE, StepVerdict.OK, "1 address: a:1.", seconds=0.25),
    ConnectionTestStep(StepName.CONNECT, StepVerdict.WARNING, "1 of 2 addresses responds.", "Check b.", 1.5),
    ConnectionTestStep(StepName.TLS, StepVerdict.FAILED, "The certificate has expired.", "Renew it."),
    ConnectionTestStep(StepName.HEALTH, StepVerdict.FAILED, "No response."),
)
_REPORT = ConnectionTestReport("t", "default", 100.0, _STEPS, 101.0)


def test_a_report_survives_json() -> None:
    """Finished or not; a document of another version is no report."""
    for report in (_REPORT, ConnectionTestReport("t", "default", 100.0), replace(_REPORT, ended_at=109.0)):
        assert unpack_report(json.loads(json.dumps(pack_report(report)))) == report
    assert unpack_report({"steps": [{"name": "other"}]}) is None
    assert unpack_report({}) is None


def test_the_first_problem_is_the_one_to_solve() -> None:
    """A failure before a warning; a report without problems has none."""
    assert (_REPORT.verdict, _REPORT.first_problem) == (StepVerdict.FAILED, _STEPS[2])
    partial = replace(_REPORT, steps=_STEPS[:2])
    assert (partial.verdict, partial.first_problem) == (StepVerdict.WARNING, _STEPS[1])
    good = replace(_REPORT, steps=_STEPS[:1])
    assert (good.verdict, good.first_problem) == (StepVerdict.OK, None)
    assert good.pending_steps[0] is StepName.CONNECT
    assert _STEPS[2].label == "TLS"


def test_a_test_that_no_worker_starts_or_ends_is_lost() -> None:
    """It does not stay running for ever."""
    requested_report = ConnectionTestReport("t", "default", 100.0)
    started_report = replace(requested_report, started_at=110.0)

    assert requested_report.is_running(120.0)
    assert requested_report.is_lost(131.0)
    assert started_report.is_running(200.0)
    assert started_report.is_lost(231.0)
    assert not started_report.is_running(231.0)
    assert not replace(started_report, ended_at=111.0).is_lost(999.0)
