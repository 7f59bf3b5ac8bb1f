"""A store of connection tests in memory."""

from __future__ import annotations

from fleet.clusters.test_report import ConnectionTestReport


class FakeConnectionTestStore:
    """The newest connection test of each cluster, as `fleet.clusters.test_store.ConnectionTestStore` has it."""

    def __init__(self) -> None:
        self._reports: dict[str, ConnectionTestReport] = {}

    def create(self, cluster: str, now: float) -> ConnectionTestReport:
        """Store a new test and return it."""
        self._reports[cluster] = ConnectionTestReport("1", cluster, now)
        return self._reports[cluster]

    def read(self, cluster: str, test_id: str = "") -> ConnectionTestReport | None:
        """Return the newest test; None without one."""
        return self._reports.get(cluster)
