from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from dashboards import reading
from fleet.models.access import Permission
from fleet.models.tokens import create_token
from fleet.state.writer import Writer
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


@pytest.fixture
def scraper(person: MakeUser) -> dict[str, str]:
    """Headers of a token for metrics."""
    _token, secret = create_token(
        person("viewer"), "prometheus", [Permission.VIEW_METRICS], lifetime=None, now=timezone.now()
    )
    return {"Authorization": f"Bearer {secret}"}


def test_metrics_by_cluster_and_state(client: Client, scraper: dict[str, str], record: Writer) -> None:
    """A token scrapes; counts are the record's, with age applied."""
    text = client.get("/metrics", headers=scraper).content.decode()
    assert 'refloat_agents{cluster="default",state="stranded"} 1.0' in text
    assert 'refloat_data_stale{cluster="default"} 0.0' in text
    assert 'refloat_data_age_seconds{cluster="default"}' in text
    assert "refloat_record_reachable 1.0" in text


def test_metrics_without_the_record(
    client: Client, scraper: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis lost: a scrape still answers, and says so."""
    monkeypatch.setattr(reading, "reader", lambda: reading.open_reader("redis://127.0.0.1:1/0", "nobody"))
    text = client.get("/metrics", headers=scraper).content.decode()
    assert "refloat_record_reachable 0.0" in text
    assert "refloat_agents{" not in text


def test_metrics_wrong_token(client: Client, person: MakeUser) -> None:
    """A token of another scope does not open it."""
    _token, secret = create_token(
        person("viewer"), "other", [Permission.VIEW_FLEET], lifetime=None, now=timezone.now()
    )
    for header in (f"Bearer {secret}", "Bearer rfl_x_y"):
        assert client.get("/metrics", headers={"Authorization": header}).status_code == 401
