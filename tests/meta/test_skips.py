"""In CI a test is skipped only for a reason that is accepted."""

from __future__ import annotations

import os

import pytest

from tests import skips
from tests.meta.house import ROOT


def _skip_report(reason: str) -> pytest.TestReport:
    return pytest.TestReport(
        "test_x", ("", 0, ""), {}, "skipped", ("test_x.py", 1, f"Skipped: {reason}"), "call"
    )


def _pass_through_plugin(report: pytest.TestReport) -> pytest.TestReport:
    hook = skips.pytest_runtest_makereport()
    next(hook)
    with pytest.raises(StopIteration) as end:
        hook.send(report)
    final_report: pytest.TestReport = end.value.value
    return final_report


@pytest.mark.parametrize(
    ("ci", "user", "reason", "outcome"),
    [
        ("true", 0, "ssh is missing", "failed"),
        ("true", 0, next(iter(skips.ACCEPTED)), "skipped"),
        ("true", 1000, "ssh is missing", "skipped"),
        ("", 0, "ssh is missing", "skipped"),
    ],
)
def test_skip_is_a_failure_where_root_can_install_everything(
    monkeypatch: pytest.MonkeyPatch, ci: str, user: int, reason: str, outcome: str
) -> None:
    """The failure has the reason of the skip."""
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    report = _pass_through_plugin(_skip_report(reason))
    assert report.outcome == outcome
    assert reason in str(report.longrepr)


def test_accepted_reasons_are_those_of_tests() -> None:
    """A reason that no test has any more is removed from the list."""
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py") if path.name != "skips.py"]
    assert [reason for reason in skips.ACCEPTED if not any(reason in text for text in texts)] == []
