"""GEP-3440's conformance, by its names, of the gateway and both interceptors.

docs/reference/conformance.md says the same.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.flow import conformance
from tests.flow.conformance import SUBJECTS, CaseOutcome
from tests.flow.conformance_cases import CASES, GROUPS
from tests.meta.house import ROOT

Results = dict[tuple[str, str, str], CaseOutcome]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """All cases, side by side: most of them wait."""
    folder: Path = tmp_path_factory.mktemp("conformance")
    return asyncio.run(conformance.run_all(folder))


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("group", GROUPS)
def test_conformance(group: str, subject: str, results: Results) -> None:
    """Status and tries match the case; waits are never shorter. Known differences are expected."""
    cases = [case for case in CASES if case.group == group]
    complaints = {
        case.title: conformance.describe_failure(case, results[group, case.title, subject]) for case in cases
    }

    assert complaints == {case.title: case.expected_failures.get(subject, "") for case in cases}


def test_report_matches_the_results(results: Results) -> None:
    """If it does not: `python -m tests.flow.conformance` writes the page."""
    page = (ROOT / "docs" / "reference" / "conformance.md").read_text(encoding="utf-8")

    assert conformance.report(results) in page
