from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client

from fleet.models.alerting import MaintenanceWindow, Silence
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from tests.dashboards.conftest import MakeUser, reauthenticate
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser in which an operator is signed in."""
    client.force_login(person("operator"))
    reauthenticate(client)
    return client


def _silence(seconds: float = 3600.0, **values: str | float) -> Silence:
    now = datetime.now(UTC).timestamp()
    defaults = {
        "cluster": "default",
        "matchers": "kind=proxy",
        "reason": "upgrade",
        "creator": "ada",
        "starts_at": now - 60,
    }
    return Silence.objects.create(**defaults | {"ends_at": now + seconds} | values)


def test_silences_are_listed_by_their_end(operator: Client) -> None:
    """Ended ones are folded away; what will be is marked; the resolve notification is explained."""
    _silence(7200, reason="second")
    _silence(300, reason="first")
    _silence(-1, reason="over")
    _silence(9000, starts_at=datetime.now(UTC).timestamp() + 5000, reason="later")
    response = operator.get("/silences/")
    page = response.content.decode()
    assert [row.reason for row in response.context["active"]] == ["first", "second"]
    assert ">scheduled</b>" in page
    assert "ends soon</b>" in page
    assert page.count("Extend by 1 h") == 1
    assert "Ended silences (1)" in page
    assert "because some receivers keep an alert open until then" in page


def test_cause_is_shown_by_name(operator: Client) -> None:
    """In the list and in the audit log; the matcher keeps the key, which has the id of the instance."""
    Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/90569a4c", cause_kind="proxy", cause_id="90569a4c",
        cause_name="proxy-1", generation=1, state="firing", severity=2, opened_at=1.0,
    )  # fmt: skip
    row = _silence(matchers="cause=proxy/90569a4c kind=proxy")
    assert "90569a4c" not in operator.get("/silences/").content.decode()
    assert "90569a4c" not in operator.get(f"/silences/{row.pk}/extend/").content.decode()
    operator.post("/silences/", {"do": "end", "id": row.pk})
    assert AuditEntry.objects.latest("pk").subject == "cause=proxy-1 kind=proxy"
    assert "90569a4c" not in operator.get("/audit/").content.decode()


def test_silence_is_extended_and_ended_once(operator: Client) -> None:
    """The second of two people learns that nothing was left to do."""
    row = _silence()
    operator.post("/silences/", {"do": "extend", "id": row.pk})
    assert Silence.objects.get().ends_at == row.ends_at + 3600
    page = operator.post("/silences/", {"do": "end", "id": row.pk}, follow=True).content.decode()
    assert "The silence has ended." in page
    page = operator.post("/silences/", {"do": "end", "id": row.pk}, follow=True).content.decode()
    assert "The silence had ended already." in page
    page = operator.post("/silences/", {"do": "extend", "id": row.pk}, follow=True).content.decode()
    assert "Create a new silence instead" in page


def test_window_is_switched_to_what_the_button_said(operator: Client) -> None:
    """Not to the opposite: somebody else may have disabled it meanwhile."""
    _, window = _rows("default")
    for _ in range(2):
        page = operator.post("/silences/", {"do": "switch", "id": window.pk, "enabled": "no"}, follow=True)
        assert not MaintenanceWindow.objects.get().enabled
    assert "was disabled already" in page.content.decode()
    operator.post("/silences/", {"do": "switch", "id": window.pk, "enabled": "yes"})
    assert MaintenanceWindow.objects.get().enabled


def test_calendar_has_two_weeks_with_text(operator: Client) -> None:
    """Every bar is written too; in the time zone of the browser; disabled windows are left out."""
    _rows("default")
    MaintenanceWindow.objects.create(
        name="disabled one", matchers="kind=proxy", rule="FREQ=DAILY", start_time="01:00", reason="x", creator="ada",
        enabled=False,
    )  # fmt: skip
    operator.cookies["refloat_zone"] = "Europe%2FBerlin"
    response = operator.get("/silences/")
    days = response.context["calendar"]
    assert len(days) == 14
    assert all(any(bar.entry.name == "window of default" for bar in day.bars) for day in days[1:])
    page = response.content.decode()
    calendar = page.partition('id="calendar"')[2]
    assert "Times are Europe/Berlin." in calendar
    assert "disabled one" not in calendar
    assert "style=" not in calendar


def test_old_address_of_the_form_leads_to_the_new_one(operator: Client) -> None:
    """Links with matchers, as in bookmarks."""
    answer = operator.get("/silences/", {"matchers": "agent=web 1"})
    assert answer["Location"] == "/silences/new/?matchers=agent%3Dweb+1"


def test_viewer_may_not_silence(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """No form, and refused."""
    client.force_login(person("viewer"))
    assert "New silence" not in client.get("/silences/").content.decode()
    assert client.post("/silences/", {"do": "end"}).status_code == 403
    assert client.get("/silences/new/").status_code == 403


def test_window_that_cannot_be_read_is_listed_with_the_reason(operator: Client) -> None:
    """With an invalid row or an unknown time zone the page loads and alerting continues."""
    MaintenanceWindow.objects.create(
        name="old",
        matchers="kind=proxy",
        rule="FREQ=WEEKLY;COUNT=3",
        start_time="22:00",
        time_zone="Mars/Base",
        reason="x",
    )
    page = operator.get("/silences/")
    assert page.status_code == 200
    assert "was not found. Use an IANA name" in page.content.decode()


def _rows(owner: str) -> tuple[Silence, MaintenanceWindow]:
    now = datetime.now(UTC).timestamp()
    silence = Silence.objects.create(
        cluster=owner, matchers="kind=proxy", reason=f"reason of {owner}", creator="ada", starts_at=now - 60,
        ends_at=now + 3600,
    )  # fmt: skip
    window = MaintenanceWindow.objects.create(
        cluster=owner, name=f"window of {owner}", matchers="kind=proxy", rule="FREQ=DAILY", start_time="22:00",
        reason="x", creator="ada",
    )  # fmt: skip
    return silence, window


def test_limited_user_reads_effective_silences_and_changes_own_ones(
    client: Client, make_limited_user: MakeUser, fake_reader: FakeReader
) -> None:
    """Silences and windows of the installation are shown without a button; those of others are not there."""
    client.force_login(make_limited_user("operator"))
    rows = {owner: _rows(owner) for owner in ("", "other", "default")}
    page = client.get("/c/other/silences/").content.decode()
    assert "whole installation" in page
    assert "reason of other" in page
    assert "of default" not in page
    assert page.count('/extend/"') == 1
    assert page.count('value="switch"') == 1
    for owner, status in (("", 403), ("default", 404), ("other", 302)):
        silence, window = rows[owner]
        for do, row in (("extend", silence), ("switch", window), ("end", silence)):
            answer = client.post("/c/other/silences/", {"do": do, "id": row.pk})
            assert answer.status_code == status, (owner, do)
        answer = client.post(f"/c/other/silences/windows/{window.pk}/delete/")
        assert answer.status_code == status, owner
    assert [row.cluster for row in MaintenanceWindow.objects.order_by("cluster")] == ["", "default"]
    assert (
        not Silence.objects.filter(ends_at__lte=datetime.now(UTC).timestamp())
        .exclude(cluster="other")
        .exists()
    )
