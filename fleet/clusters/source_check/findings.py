"""Rules of sources, and what a check of them found. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleet.clusters.test_report import StepVerdict
from fleet.vocabulary.enum_types import LabelledEnum


class SourceRule(LabelledEnum):
    """Rules in the order of the report."""

    SLUG = "slug", "The slug is valid and belongs to no other source"
    CODE = "code", "Polling and connection test can be loaded"
    CAPABILITIES = "capabilities", "Declared capabilities are those that the evidence delivers"
    FORM = "form", "The fields of the form are valid"
    CONNECTION_TEST = "connection-test", "The connection test has a step for every capability"
    DEADLINES = "deadlines", "Requests keep their deadline"
    ERRORS = "errors", "Bad data and refusals raise only SourceError"
    REVISIONS = "revisions", "Unchanged data is no change"


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """Result of the check of a rule: its problems as sentences; empty if the source keeps the rule."""

    rule: SourceRule
    problems: tuple[str, ...] = ()
    #: Why the rule could not be checked; empty if it was.
    skip_reason: str = ""

    @property
    def verdict(self) -> StepVerdict:
        """Return whether the source keeps the rule."""
        if self.problems:
            return StepVerdict.FAILED
        return StepVerdict.SKIPPED if self.skip_reason else StepVerdict.OK


def pack_findings(slug: str, findings: list[RuleFinding]) -> dict[str, Any]:
    """Return the findings as a JSON document."""
    return {
        "source": slug,
        "verdict": "failed" if any(finding.problems for finding in findings) else "ok",
        "rules": [
            {
                "rule": finding.rule.value,
                "label": finding.rule.label,
                "verdict": finding.verdict.value,
                "problems": list(finding.problems),
                "skip_reason": finding.skip_reason,
            }
            for finding in findings
        ],
    }
