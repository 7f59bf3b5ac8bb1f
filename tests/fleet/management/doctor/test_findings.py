from __future__ import annotations

import re

import pytest

from fleet.management.doctor import findings
from fleet.management.doctor.findings import NAMES_BY_AREA, CheckVerdict
from tests.meta.house import ROOT


def test_summary_counts_errors_and_warnings() -> None:
    """The nouns agree with their numbers."""
    error = findings.error("redis-memory", "Full.", "Raise the limit.")
    warning = findings.warning("public-url", "Not set.", "Set it.")

    assert findings.summarize([error, error, error, warning]) == "3 errors, 1 warning"
    assert findings.summarize([]) == "0 errors, 0 warnings"


def test_findings_are_sorted_by_area() -> None:
    """The order within a name stays."""
    first, second = findings.ok("alerting", "First."), findings.ok("alerting", "Second.")
    settings_finding = findings.skip("setting-values", "Third.")

    assert findings.sort_findings([first, second, settings_finding]) == [settings_finding, first, second]
    assert settings_finding.area == "Settings"


def test_every_verdict_has_its_own_symbol() -> None:
    """None of them is told apart by colour."""
    assert len({verdict.symbol for verdict in CheckVerdict}) == len(CheckVerdict)


def test_unknown_name_has_no_area() -> None:
    with pytest.raises(KeyError):
        _ = findings.ok("other", "Good.").area


def test_reference_has_every_finding() -> None:
    """One row for each name, and for no other."""
    section = (ROOT / "docs/reference/doctor.md").read_text("utf-8").partition("## Findings")[2]
    rows = re.findall(r"^\| (`[a-z`, -]+`) \|", section.partition("## JSON")[0], re.MULTILINE)
    documented_names = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]

    assert sorted(documented_names) == sorted(name for names in NAMES_BY_AREA.values() for name in names)
