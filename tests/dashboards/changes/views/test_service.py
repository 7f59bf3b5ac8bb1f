"""The page that takes an instance out of service and brings it back, over a real record."""

from __future__ import annotations

import time

import pytest
from celery import current_app
from django.test import Client

from dashboards.changes import service
from fleet.models.changes import AuditEntry, Change
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.drains import Drain
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.instances import Poll, PollAttempt
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser, reauthenticate
from tests.fakes.record import conclude

pytestmark = pytest.mark.django_db
REASON = "kernel update"


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tasks that workers are given."""
    names: list[str] = []
    monkeypatch.setattr(current_app, "send_task", lambda name, **_: names.append(name))
    return names


@pytest.fixture
def path(client: Client, person: MakeUser, record: Writer) -> str:
    """The page of proxy-1, in a browser of an operator."""
    ensure_default_cluster()
    client.force_login(person("operator"))
    reauthenticate(client)
    (identity,) = (
        instance_id for instance_id, _, name in record.instance_identities("default") if name == "proxy-1"
    )
    return f"/instances/{identity}/service/"


def test_drain_and_undrain(client: Client, path: str, tasks: list[str]) -> None:
    """A reason makes a row, an entry in the log and a task; the page then offers the way back."""
    assert f'href="{path}"' in client.get("/").content.decode()
    assert "Take proxy-1 out of service" in client.get(path).content.decode()
    assert client.post(path, {"action": "take-out", "reason": REASON, "sure": "on"}).status_code == 302
    row = Drain.objects.get()
    assert (row.name, row.is_drained, row.reason) == ("proxy-1", True, REASON)
    assert AuditEntry.objects.get().action == "instance.drain"
    assert tasks == ["fleet.tasks.apply_drains"]
    page = client.get(path).content.decode()
    assert "does not report that it is draining yet" in page
    assert "Bring proxy-1 back" in page
    assert _row_texts_of(client) == (True, True)
    assert client.post(path, {"action": "bring-back", "reason": REASON}).status_code == 302
    assert not Drain.objects.get().is_drained
    assert _row_texts_of(client) == (False, False)


def _row_texts_of(client: Client) -> tuple[bool, bool]:
    """Return whether Fleet now says of proxy-1 that a drain was requested, and links to bringing it back."""
    page = client.get("/?part=instances").content.decode()
    row = page.partition('data-instance="proxy-1"')[2].partition("</tr>")[0]
    assert ("Bring back…" in row) is not ("Take out of service…" in row)
    return "<b>Drain requested</b>" in row, "Bring back…" in row


@pytest.mark.parametrize("reason", ["", "x", "x" * 201, "a\x01bc"])
def test_reason_is_needed(client: Client, path: str, tasks: list[str], reason: str) -> None:
    """Without one, or with one nobody can read, nothing is done."""
    answer = client.post(path, {"action": "take-out", "reason": reason, "sure": "on"})
    assert answer.status_code == 200
    assert answer.context["form"].errors
    assert not Drain.objects.exists()
    assert tasks == []


def test_drain_of_the_last_instance_requires_confirmation(
    client: Client, path: str, tasks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another proxy that accepts connections, the drain must be confirmed."""
    monkeypatch.setattr(service, "accepts_connections", lambda *_: False)
    assert "No other proxy accepts connections" in client.get(path).content.decode()
    assert client.post(path, {"action": "take-out", "reason": REASON}).context["form"].errors["sure"]
    assert client.post(path, {"action": "take-out", "reason": REASON, "sure": "on"}).status_code == 302


def test_viewer_sees_no_action_and_is_refused(client: Client, path: str, person: MakeUser) -> None:
    """The link is not there, and the page is not theirs."""
    client.force_login(person("viewer"))
    assert "/service/" not in client.get("/").content.decode()
    assert client.get(path).status_code == 403
    assert client.get("/instances/nobody/service/").status_code == 403


def test_unknown_instance_is_not_found(client: Client, path: str) -> None:
    """404."""
    assert client.get("/instances/nobody/service/").status_code == 404


def test_unhealthy_instance_is_not_shown_as_accepting_connections(
    client: Client, path: str, record: Writer
) -> None:
    """The page shows the same state as Fleet now."""
    assert "accepts new connections." in client.get(path).content.decode()
    _silence_proxy_1(record)
    page = client.get(path).content.decode()
    assert "accepts new connections." not in page
    assert "is not responding" in page


def _silence_proxy_1(record: Writer) -> None:
    """Conclude a round in which proxy-1 does not respond."""
    epoch, now = record.epoch("default"), time.time()
    assert epoch is not None
    (index,) = (place for place, facts in record.load_instances("default").items() if facts.name == "proxy-1")
    silent = Poll(
        attempts=(
            PollAttempt(now - 1, ok=False, error="refused"),
            PollAttempt(now, ok=False, error="refused"),
        )
    )
    record.write_instances("default", epoch, resources={}, polls={index: silent}, probed_at=now)
    assert conclude(record, [State.HEALTHY] * 4, as_of=now)


def test_silent_proxy_is_only_drained(client: Client, path: str, record: Writer, tasks: list[str]) -> None:
    """Refloat cannot reach its agents: page and runbook say so, no campaign is offered, none is made."""
    _silence_proxy_1(record)
    page = client.get(path)
    sentence = page.context["unreachable_text"]
    assert sentence.startswith("Refloat cannot reach the agents of proxy-1 (")
    assert sentence in page.content.decode()
    assert "as soon as it responds" in page.content.decode()
    assert page.context["forecast"].reconnect_count == 0
    assert "Reconnects" not in page.content.decode()
    instance_id = path.split("/")[2]
    runbook = f"/alerts/runbooks/proxy/?instance={instance_id}"
    assert sentence in client.get(runbook).content.decode()
    assert "Take proxy-1 out of service…" in client.get(runbook).content.decode()
    assert client.post(path, {"action": "take-out", "move_agents": "no", "reason": REASON}).status_code == 302
    change = Change.objects.get()
    assert (change.title, change.state, tasks) == ("Drain proxy-1", "verifying", ["fleet.tasks.apply_drains"])
    assert "Bring proxy-1 back into service…" in client.get(runbook).content.decode()
    assert _row_texts_of(client) == (True, True)


def _page_of(record: Writer, name: str) -> str:
    (identity,) = (
        instance
        for instance, _, instance_name in record.instance_identities("default")
        if instance_name == name
    )
    return f"/instances/{identity}/service/"


def test_agents_move_in_the_same_step(client: Client, path: str, record: Writer, tasks: list[str]) -> None:
    """The page shows where they go; one form plans the change and confirms it."""
    page = client.get(path)
    assert page.context["forecast"].reconnect_count
    assert page.context["load_bars"][0].is_leaving
    form = {"action": "take-out", "move_agents": "yes", "preset": "fast", "reason": REASON}
    answer = client.post(path, form)
    change = Change.objects.get()
    assert answer.headers["Location"] == f"/changes/{change.pk}/"
    assert (change.kind, change.state, change.reason) == ("service", "confirmed", REASON)
    assert change.parameters["settings"]["rate_per_minute"] == 3000
    assert tasks == ["fleet.tasks.run_change"]
    page_of_change = client.get(f"/changes/{change.pk}/").content.decode()
    assert "Take proxy-1 out of service" in page_of_change


def test_production_cluster_needs_its_name_typed(client: Client, path: str, tasks: list[str]) -> None:
    """The form comes back with what was typed."""
    Cluster.objects.update(production=True)
    form = {"action": "take-out", "move_agents": "yes", "reason": REASON}
    answer = client.post(path, form)
    assert answer.context["form"].errors["confirmation"]
    assert f'value="{REASON}"' in answer.content.decode()
    assert not Change.objects.exists()
    assert client.post(path, {**form, "confirmation": "default"}).status_code == 302
    assert Change.objects.get().state == "confirmed"


def test_busy_cluster_is_named(client: Client, path: str, record: Writer, tasks: list[str]) -> None:
    """Agents move after the other change; the drain itself does not wait."""
    client.post(path, {"action": "take-out", "move_agents": "yes", "reason": REASON})
    Change.objects.update(state="running")
    page = client.get(_page_of(record, "auth-1")).content.decode()
    assert "Agents move after that change has ended" in page
