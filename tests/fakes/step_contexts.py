"""Inputs of plans and steps of changes, of which a test fills only what they use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fleet.changes.base_kind import RecordSnapshot
from fleet.changes.base_runner import StepContext
from fleet.monitoring.agent_report import AgentReportResponse
from fleet.monitoring.views import FleetTable, InstanceView


@dataclass(frozen=True)
class InMemoryReader:
    """A reader of one fleet in memory."""

    make_table: Callable[[float], FleetTable] | None = None
    make_views: Callable[[], tuple[InstanceView, ...]] | None = None

    def table(self, cluster: str, now: float) -> FleetTable:
        """See Reader."""
        assert self.make_table is not None, "the test makes no table"
        return self.make_table(now)

    def instances(self, cluster: str, now: float) -> tuple[InstanceView, ...]:
        """See Reader."""
        assert self.make_views is not None, "the test makes no instances"
        return self.make_views()

    def agent_responses(self, cluster: str) -> dict[int, AgentReportResponse]:
        """See Reader."""
        return {}


def record_snapshot_of(reader: Any, now: float, book: Any = None) -> RecordSnapshot:
    """Return the record of a fleet in memory."""
    return RecordSnapshot(reader, book, now)


def create_step_context(clock: Callable[[], float], holder: str = "w", **fields: Any) -> StepContext:
    """Return a context with these `fields` (reader, writer, auth_client, dialer); chance is always 0.5."""
    all_fields: dict[str, Any] = {
        "reader": None,
        "writer": None,
        "auth_client": None,
        "dialer": None,
        **fields,
    }
    return StepContext(**all_fields, clock=clock, random=lambda: 0.5, holder=holder)
