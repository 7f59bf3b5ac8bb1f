from __future__ import annotations

import pytest
from django.test import Client

from dashboards.alerts.instance_repair import read_repair
from dashboards.shared import record_reader
from fleet.monitoring.state import StateUnavailableError
from tests.dashboards.conftest import MakeUser
from tests.fakes.headline_fleets import table_with
from tests.fakes.small_fleet import NOW, SILENT


class _Reader:
    """Answers with one table, or fails."""

    def __init__(self, *, is_available: bool = True) -> None:
        self._is_available = is_available

    def table(self, cluster: str, now: float) -> object:
        """Return the table of a fleet whose proxy-1 does not respond."""
        if not self._is_available:
            raise StateUnavailableError("no data")
        return table_with(proxy_1=SILENT)

    def summary(self, cluster: str, now: float) -> object:
        """Fail: the page shows no age without it."""
        raise StateUnavailableError("no data")


def _read_from(monkeypatch: pytest.MonkeyPatch, reader: _Reader) -> None:
    monkeypatch.setattr(record_reader, "reader", lambda: reader)
    monkeypatch.setattr(record_reader, "current_time", lambda: NOW)


def test_repair_has_what_is_known_of_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Since when it fails, when it responded last, and what to do."""
    _read_from(monkeypatch, _Reader())
    repair = read_repair("default", "uuid-proxy-1", NOW)
    assert repair is not None
    assert (repair.card.name, repair.card.shown_state.label) == ("proxy-1", "not responding")
    assert [(moment.label, moment.age_ms) for moment in repair.moments] == [
        ("Failing since", 2000),
        ("Last response", 200),
        ("Heartbeat expiry", -7000),
    ]
    assert repair.steps[0].startswith("Check the host of proxy-1")


def test_instance_without_data_has_no_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance without a record, and all instances while the record cannot be read."""
    _read_from(monkeypatch, _Reader())
    assert read_repair("default", "unknown", NOW) is None
    _read_from(monkeypatch, _Reader(is_available=False))
    assert read_repair("default", "uuid-proxy-1", NOW) is None


@pytest.mark.django_db
def test_runbook_begins_with_the_instance_to_repair(
    client: Client, person: MakeUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its address and error; an unknown proxy gets the runbook alone, and that there is no data."""
    client.force_login(person("viewer"))
    _read_from(monkeypatch, _Reader())
    page = client.get("/alerts/runbooks/proxy/?instance=uuid-proxy-1").content.decode()
    assert "<h1>Repair proxy-1</h1>" in page
    assert "<code>127.0.0.1:1</code>" in page
    assert "if it has ended or hangs." in page
    page = client.get("/alerts/runbooks/proxy/?instance=gone").content.decode()
    assert "Refloat has no data about this instance." in page
    assert "<h1>Repair" not in page
