from __future__ import annotations

import pytest

from fleet.management.doctor.clock_checks import check_clock
from fleet.management.doctor.findings import CheckVerdict

_NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("server_offset", "duration", "verdict", "phrase"),
    [
        (0.0, 0.1, CheckVerdict.OK, "agree"),
        (1.5, 0.0, CheckVerdict.OK, "agree"),
        (3.0, 3.5, CheckVerdict.OK, "agree"),
        (3.0, 0.0, CheckVerdict.WARNING, "3 s behind"),
        (-4.0, 0.0, CheckVerdict.WARNING, "4 s ahead of"),
        (300.0, 0.0, CheckVerdict.ERROR, "5 min behind"),
        (-300.0, 2.0, CheckVerdict.ERROR, "5 min ahead of"),
    ],
)
def test_offsets(server_offset: float, duration: float, verdict: CheckVerdict, phrase: str) -> None:
    """The time of the request itself is no difference."""
    finding = check_clock("redis-clock", "Redis", _NOW + server_offset, _NOW, _NOW + duration)

    assert finding.verdict is verdict
    assert phrase in finding.summary
    assert ("timedatectl" in finding.remedy) == (verdict is not CheckVerdict.OK)
