"""A store of connection tests in memory."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.clusters.test_report import ConnectionTestReport, StepName


class FakeConnectionTestStore:
    """The newest connection test of each cluster, as `fleet.clusters.test_store.ConnectionTestStore` has it."""

    def __init__(self) -> None:
        self._reports: dict[str, ConnectionTestReport] = {}

    def create(
        self, cluster: str, now: float, step_names: Sequence[StepName] = tuple(StepName)
    ) -> ConnectionTestReport:
        """Store a new test and return it."""
        self._reports[cluster] = ConnectionTestReport("1", cluster, now, step_names=tuple(step_names))
        return self._reports[cluster]

    def read(self, cluster: str, test_id: str = "") -> ConnectionTestReport | None:
        """Return the newest test; None without one."""
        return self._reports.get(cluster)
