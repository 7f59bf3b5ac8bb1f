from __future__ import annotations

import re
import secrets
import time

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from dashboards.shared import record_reader
from fleet import __version__
from fleet.models.access import Permission
from fleet.models.alerting import AlertClock, Channel, Delivery
from fleet.models.clusters import ensure_default_cluster
from fleet.models.tokens import create_token
from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.identities import IdentityStore, IdentityValidity
from fleet.monitoring.state.writer import Writer
from fleet.protocol.destination.health import ActiveHealth, DrainRequest, Health, HealthReason, HealthSignal
from fleet.vocabulary.instances import Poll, PollAttempt
from fleet.vocabulary.watch import InstanceWatch
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

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
    assert "refloat_redis_reachable 1.0" in text
    assert f'refloat_build_info{{version="{__version__}"}} 1.0' in text


def test_expiry_of_the_identity_of_each_cluster(
    client: Client, scraper: dict[str, str], record: Writer, live_settings: Settings
) -> None:
    """Of clusters that are read with a client certificate only."""
    name = 'refloat_identity_expiry_timestamp_seconds{cluster="default"}'
    assert name not in client.get("/metrics", headers=scraper).content.decode()
    store = IdentityStore(connect(live_settings.REDIS_URL), live_settings.REFLOAT_PREFIX)
    store.write("default", IdentityValidity("refloat", 0.0, 86400.0))
    assert f"{name} 86400.0" in client.get("/metrics", headers=scraper).content.decode()


def test_metrics_of_instances(client: Client, scraper: dict[str, str], record: Writer) -> None:
    """The health of each as a destination with its reason, since when, and who drains; one that is gone has none."""
    now, epoch = time.time(), record.epoch("default")
    assert epoch is not None
    active = ActiveHealth(
        HealthSignal(Health.DEGRADED, HealthReason.FAILURES_IN_WINDOW, now - 30),
        probed_at=now - 0.1,
    )
    watch = InstanceWatch(active, "127.0.0.1:9000", drain_request=DrainRequest("kernel update", now - 5))
    poll = Poll(attempts=(PollAttempt(now - 0.1, ok=True),), watch=watch)
    record.write_instances("default", epoch, polls={0: poll}, probed_at=now)
    lines = client.get("/metrics", headers=scraper).content.decode().splitlines()
    instance_lines = [line for line in lines if line.startswith("refloat_instance_") and "auth-1-id" in line]
    assert len(instance_lines) == 3
    assert any(
        'health="degraded"' in line and 'reason="too many of the last probes failed"' in line
        for line in instance_lines
    )
    assert any(
        line.startswith("refloat_instance_draining{") and line.endswith(" 1.0") for line in instance_lines
    )
    (since,) = (line for line in instance_lines if "since_timestamp" in line)
    assert float(since.rsplit(" ", 1)[1]) == pytest.approx(now - 30)
    health_line = [
        line for line in lines if line.startswith("refloat_instance_health{") and "proxy-2-id" in line
    ]
    assert len(health_line) == 1
    assert 'health="unknown",' in health_line[0]
    assert 'reason=""' in health_line[0]


def test_metrics_without_the_record(
    client: Client, scraper: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis lost: a scrape still answers, and says so."""
    monkeypatch.setattr(
        record_reader, "reader", lambda: record_reader.open_reader("redis://127.0.0.1:1/0", "nobody")
    )
    text = client.get("/metrics", headers=scraper).content.decode()
    assert "refloat_redis_reachable 0.0" in text
    assert "refloat_agents{" not in text


def test_metrics_wrong_token(client: Client, person: MakeUser) -> None:
    """A token of another scope does not open it."""
    _token, secret = create_token(
        person("viewer"), "other", [Permission.VIEW_FLEET], lifetime=None, now=timezone.now()
    )
    for header in (f"Bearer {secret}", "Bearer rfl_x_y"):
        assert client.get("/metrics", headers={"Authorization": header}).status_code == 401


@pytest.mark.parametrize("header", [{}, {"Authorization": "Basic YTpi"}])
def test_metrics_without_a_token(
    client: Client, person: MakeUser, record: Writer, header: dict[str, str]
) -> None:
    """401 with a hint, without a redirect to sign-in; a signed-in browser may read."""
    answer = client.get("/metrics", headers=header)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="refloat"')
    client.force_login(person("viewer"))
    assert client.get("/metrics", headers=header).status_code == 200


def test_metrics_are_limited_to_visible_clusters(
    client: Client, make_limited_user: MakeUser, scraper: dict[str, str], fake_reader: FakeReader
) -> None:
    """Of all of them, and of messages that concern none, without a limit; else of one, by every series."""
    _token, secret = create_token(
        make_limited_user("viewer"),
        "prometheus",
        [Permission.VIEW_METRICS],
        lifetime=None,
        now=timezone.now(),
    )
    ensure_default_cluster()
    for cluster in ("default", "other"):
        AlertClock.objects.create(cluster_id=cluster, evaluated_at=1.0)
    channel = Channel.objects.create(name="ops", kind="webhook")
    for cluster in ("", "default", "other", "other"):
        Delivery.objects.create(
            channel=channel, cluster=cluster, key=secrets.token_hex(4), kind="firing", payload={}, created_at=1.0,
            next_attempt_at=1.0,
        )  # fmt: skip
    whole = client.get("/metrics", headers=scraper).content.decode()
    own = client.get("/metrics", headers={"Authorization": f"Bearer {secret}"}).content.decode()
    assert 'refloat_notifications{cluster="other",state="pending"} 2.0' in whole
    assert 'refloat_notifications{cluster="",state="pending"} 1.0' in whole
    assert 'refloat_watchdog_timestamp_seconds{cluster="default"}' in whole
    assert 'refloat_notifications{cluster="other",state="pending"} 2.0' in own
    clusters = {
        part for line in own.splitlines() if "{" in line for part in re.findall(r'cluster="(.*?)"', line)
    }
    assert clusters == {"other"}
