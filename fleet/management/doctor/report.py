"""Report of findings as text and as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from fleet.management.doctor.findings import CheckFinding, CheckVerdict, count_verdicts, summarize
from fleet.processes.log_format import escape_unprintable

_WORD_WIDTH = max(len(verdict.value) for verdict in CheckVerdict)
_INDENT = " " * (_WORD_WIDTH + 6)


def format_text(findings: Sequence[CheckFinding], *, with_symbols: bool) -> str:
    """Return the findings by area, and their number in the last line.

    `with_symbols`: the terminal can show them; the words are always there.
    """
    lines: list[str] = []
    for area, area_findings in groupby(findings, key=lambda finding: finding.area):
        lines.append(area)
        for finding in area_findings:
            symbol = f"{finding.verdict.symbol} " if with_symbols else ""
            verdict_name = finding.verdict.value.ljust(_WORD_WIDTH)
            lines.append(f"  {symbol}{verdict_name}  {finding.name}: {escape_unprintable(finding.summary)}")
            if finding.remedy:
                indent = _INDENT if with_symbols else _INDENT[2:]
                lines.append(indent + escape_unprintable(finding.remedy))
        lines.append("")
    return "\n".join([*lines, summarize(findings), ""])


def to_json(findings: Sequence[CheckFinding], versions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the findings as an object for programs. docs/reference/doctor.md, "JSON"."""
    counts = count_verdicts(findings)
    return {
        "versions": dict(versions),
        "errors": counts[CheckVerdict.ERROR],
        "warnings": counts[CheckVerdict.WARNING],
        "findings": [
            {
                "area": finding.area,
                "name": finding.name,
                "verdict": finding.verdict.value,
                "summary": finding.summary,
                "remedy": finding.remedy,
            }
            for finding in findings
        ],
    }


def format_json(document: Mapping[str, Any]) -> str:
    """Return a JSON object as text with a line break at its end."""
    return f"{json.dumps(document, indent=1, ensure_ascii=False)}\n"
