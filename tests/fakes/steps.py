"""What plans and steps of changes are given, where a test has made only the parts that they use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleet.changes.base_kind import RecordSnapshot
from fleet.changes.base_runner import StepContext
from fleet.monitoring.agent_report import AgentReportResponse
from fleet.monitoring.views import FleetTable, InstanceView


@dataclass(frozen=True)
class SightOfMoment:
    """A reader of one fleet in memory."""

    table_at: Callable[[float], FleetTable] | None = None
    views: Callable[[], tuple[InstanceView, ...]] | None = None

    def table(self, cluster: str, now: float) -> FleetTable:
        """See Reader."""
        assert self.table_at is not None, "the test makes no table"
        return self.table_at(now)

    def instances(self, cluster: str, now: float) -> tuple[InstanceView, ...]:
        """See Reader."""
        assert self.views is not None, "the test makes no instances"
        return self.views()

    def agent_responses(self, cluster: str) -> dict[int, AgentReportResponse]:
        """See Reader."""
        return {}


def record_of(reader: Any, now: float, book: Any = None) -> RecordSnapshot:
    """Return the record of a fleet in memory."""
    return RecordSnapshot(reader, book, now)


def context_of(clock: Callable[[], float], holder: str = "w", **parts: Any) -> StepContext:
    """Return a context of these `parts` (reader, writer, auth_client, dialer); chance is always 0.5."""
    contents: dict[str, Any] = {"reader": None, "writer": None, "auth_client": None, "dialer": None, **parts}
    return StepContext(**contents, clock=clock, random=lambda: 0.5, holder=holder)
