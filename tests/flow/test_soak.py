"""Two minutes of the soak: faults by a schedule, and every invariant after each (`make soak` plays longer ones)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.run import run_soak
from tests.soak.schedule import Shape, format_schedule, plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: A seed whose two minutes have a proxy, Redis and an auth.
SEED = 3
MINUTES = 2.5


def test_faults_of_a_schedule_violate_no_invariant(tmp_path: Path) -> None:
    """Verdicts are what users find, each cause has one incident, no user is cut, nothing grows, logs are clean."""
    lines: list[str] = []
    steps = plan(SEED, MINUTES, Shape())
    with run_soak(tmp_path, SEED, Shape(), lines.append) as soak:
        outcome = soak.run(steps, MINUTES)
    report = "\n".join([format_schedule(steps), *lines, *outcome.violations])
    assert not outcome.violations, report
    assert outcome.faults, report
    assert outcome.echoes > 100, report
    assert outcome.incidents, report
    assert outcome.notifications, report
