"""Findings of `refloat doctor`: their names, areas and verdicts. Pure. docs/reference/doctor.md."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class CheckVerdict(enum.Enum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    #: The check could not run: its findings depend on something that has an error, or that is not configured.
    SKIPPED = "skipped"

    @property
    def symbol(self) -> str:
        """The symbol of the verdict; reports always show the word, too."""
        return _SYMBOLS[self]


_SYMBOLS = {
    CheckVerdict.OK: "✓",
    CheckVerdict.WARNING: "!",
    CheckVerdict.ERROR: "✗",
    CheckVerdict.SKIPPED: "-",
}

#: Names of findings by area, in the order of the report.
NAMES_BY_AREA = {
    "Settings": ("setting-values", "setting-names", "setting-combinations", "allowed-hosts"),
    "Files": ("home-folder", "secret-key", "file-modes", "file-owners", "disk-space"),
    "TLS": ("tls-files", "tls-expiry", "cluster-tls", "cluster-addresses"),
    "Database": (
        *("database-connection", "database-version", "database-integrity"),
        *("database-migrations", "database-newer"),
    ),
    "Redis": (
        *("redis-connection", "redis-version", "redis-writes", "redis-memory"),
        *("redis-eviction", "redis-persistence"),
    ),
    "Clocks": ("database-clock", "redis-clock"),
    "Sources": ("source-plugins", "cluster-sources"),
    "Processes": (
        "polling-rounds",
        "fleet-instances",
        "scheduler",
        "worker-polls",
        "worker-actions",
        "alerting",
    ),
    "Notification channels": (
        *("public-url", "channel-secrets", "channel-deliveries", "channel-rate-limits"),
    ),
}
_AREA_BY_NAME = {name: area for area, names in NAMES_BY_AREA.items() for name in names}


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """What one check saw, and what to do."""

    #: One of `NAMES_BY_AREA`.
    name: str
    verdict: CheckVerdict
    #: One sentence: what was seen.
    summary: str
    #: One sentence: what to do; empty if nothing has to be done.
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """What was seen and what to do, on one line."""
        return " ".join(f"{self.summary} {self.remedy}".split())

    @property
    def area(self) -> str:
        """The heading of the finding in the report. Raises KeyError for a name that is not declared."""
        return _AREA_BY_NAME[self.name]


def ok(name: str, summary: str) -> CheckFinding:
    """Return a finding that needs no action."""
    return CheckFinding(name, CheckVerdict.OK, summary)


def warning(name: str, summary: str, remedy: str) -> CheckFinding:
    """Return a finding that should be corrected, although Refloat works."""
    return CheckFinding(name, CheckVerdict.WARNING, summary, remedy)


def error(name: str, summary: str, remedy: str) -> CheckFinding:
    """Return a finding that must be corrected: something does not work, or is not secure."""
    return CheckFinding(name, CheckVerdict.ERROR, summary, remedy)


def skip(name: str, summary: str) -> CheckFinding:
    """Return a finding of a check that could not run."""
    return CheckFinding(name, CheckVerdict.SKIPPED, summary)


def sort_findings(findings: Iterable[CheckFinding]) -> list[CheckFinding]:
    """Return the findings in the order of the report."""
    positions = {name: position for position, name in enumerate(_AREA_BY_NAME)}
    return sorted(findings, key=lambda finding: positions[finding.name])


def count_verdicts(findings: Iterable[CheckFinding]) -> dict[CheckVerdict, int]:
    """Return the number of findings of each verdict."""
    verdicts = [finding.verdict for finding in findings]
    return {verdict: verdicts.count(verdict) for verdict in CheckVerdict}


def summarize(findings: Iterable[CheckFinding]) -> str:
    """Return the last line of the report: `3 errors, 1 warning`."""
    counts = count_verdicts(findings)
    errors, warnings = counts[CheckVerdict.ERROR], counts[CheckVerdict.WARNING]
    return f"{format_count(errors, 'error')}, {format_count(warnings, 'warning')}"


def format_count(count: int, noun: str) -> str:
    """Return a number with its regular noun: `1 error`, `2 errors`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
