"""The console's one door to the record: a Reader per process. Everything shown comes through it, age applied."""

from __future__ import annotations

import functools
import time
from typing import Protocol, cast

from django.conf import settings
from django.utils.module_loading import import_string

from fleet.domain.views import (
    AgentView,
    Explanation,
    FleetTable,
    InstanceView,
    Layout,
    Snapshot,
    StreamHeader,
    Summary,
)


class FleetReader(Protocol):
    """What the console asks of `fleet.state.reader`. Every method may raise StateUnavailable."""

    def summary(self, cluster: str, now: float) -> Summary:
        """The fleet in ten numbers."""

    def snapshot(self, cluster: str, now: float) -> Snapshot:
        """One byte per agent."""

    def layout(self, cluster: str) -> Layout:
        """Who stands where."""

    def layout_version(self, cluster: str) -> str:
        """The layout's version alone."""

    def instances(self, cluster: str, now: float) -> tuple[InstanceView, ...]:
        """All instances ever seen."""

    def table(self, cluster: str, now: float) -> FleetTable:
        """All columns."""

    def agent(self, table: FleetTable, index: int) -> AgentView:
        """One row of the table."""

    def explain(self, cluster: str, agent_id: str, now: float) -> Explanation | None:
        """One agent with its evidence."""

    def header(self, cluster: str, now: float) -> StreamHeader:
        """Where the event stream is."""


@functools.cache
def reader() -> FleetReader:
    """The process's reader; safe in threads."""
    return cast(
        FleetReader,
        import_string("fleet.state.reader.open_reader")(settings.REDIS_URL, settings.REFLOAT_PREFIX),
    )


def current_time() -> float:
    """Seconds since the epoch: the `now` of one request or one tick, taken once."""
    return time.time()
