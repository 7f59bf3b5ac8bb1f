from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client
from pytest_django import Settings

from dashboards.clusters.identity_rows import read_identity
from dashboards.shared import record_reader
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.identities import IdentityStore, IdentityValidity
from fleet.monitoring.state.reader import open_reader
from fleet.monitoring.state.writer import Writer
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db
_HOUR = 3600.0


def _write(settings: Settings, validity: IdentityValidity) -> None:
    IdentityStore(connect(settings.REDIS_URL), settings.REFLOAT_PREFIX).write("default", validity)


@pytest.mark.parametrize(
    ("now", "sentence", "is_expiring"),
    [
        (0.0, "Expires in 10 h", False),
        (8 * _HOUR - 90, "Expires in 2 h", True),
        (10 * _HOUR - 1, "Expires in 1 s", True),
        (10 * _HOUR + 300, "Expired 5 min ago", True),
        (200 * _HOUR, "Expired 7 d ago", True),
    ],
)
def test_sentence_and_warning(
    record: Writer, live_settings: Settings, now: float, sentence: str, is_expiring: bool
) -> None:
    """The last quarter of ten hours is a warning; a time has one unit."""
    _write(live_settings, IdentityValidity("refloat", 0.0, 10 * _HOUR))
    row = read_identity("default", now)
    assert row is not None
    assert (row.sentence, row.is_expiring, row.common_name) == (sentence, is_expiring, "refloat")
    assert row.expires_at == datetime(1970, 1, 1, 10, tzinfo=UTC)


def test_cluster_without_identity_and_redis_down(record: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_identity("default", 0.0) is None
    monkeypatch.setattr(record_reader, "reader", lambda: open_reader("redis://127.0.0.1:1/0", "x"))
    assert read_identity("default", 0.0) is None


def test_page_and_api_show_the_identity(
    client: Client, person: MakeUser, record: Writer, live_settings: Settings
) -> None:
    """An old one is marked on the page, and `is_expiring` in the API."""
    client.force_login(person("admin"))
    assert "Identity of Refloat" not in client.get("/clusters/default/").content.decode()
    assert client.get("/api/v1/clusters/default").json()["identity"] is None
    _write(live_settings, IdentityValidity("refloat", 0.0, 10 * _HOUR, ("fleet-reader",)))
    page = client.get("/clusters/default/").content.decode()
    assert 'class="mark mark-warning">Expired' in page
    assert "1970-01-01 10:00 UTC" in page
    assert client.get("/api/v1/clusters/default").json()["identity"] == {
        "common_name": "refloat",
        "expires_at": "1970-01-01T10:00:00Z",
        "is_expiring": True,
        "roles": ["fleet-reader"],
    }
