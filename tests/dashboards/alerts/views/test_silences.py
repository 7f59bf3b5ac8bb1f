from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from fleet.models.alerting import MaintenanceWindow, Silence
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser, reauthenticate
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser in which an operator is signed in."""
    client.force_login(person("operator"))
    reauthenticate(client)
    return client


def test_preview_shows_matching_incidents(operator: Client) -> None:
    """Agents by name; everything; and what cannot be read."""
    previews = [
        operator.get("/silences/preview", {"matchers": text}).content.decode()
        for text in ("agent=agent-*", "", "colour=red")
    ]
    assert "<b>4</b> agents" in previews[0]
    assert "Empty matchers match everything:" in previews[1]
    assert "unknown field colour" in previews[2].lower()


def test_preview_counts_an_agent_of_several_incidents_once(operator: Client, fake_reader: FakeReader) -> None:
    """An incident of the whole fleet counts agents that another one counts as well."""
    fake_reader.states[:] = [State.EXCESS, State.EXCESS, State.HEALTHY, State.HEALTHY]
    for kind, identity, affected in (("fleet", "excess", 2), ("cluster", "default", 4)):
        Incident.objects.create(
            cluster=ensure_default_cluster(), key=f"{kind}/{identity}", cause_kind=kind, cause_id=identity,
            cause_name=identity, generation=1, state="firing", severity=2, opened_at=1.0, affected_count=affected,
        )  # fmt: skip
    preview = operator.get("/silences/preview", {"matchers": ""}).content.decode()
    assert "<b>4</b> affected agents and <b>2</b> incidents" in preview


def test_silence_is_created_extended_and_ended_by_the_signed_in_user(operator: Client) -> None:
    """Its creator cannot be forged; each step is in the log."""
    operator.post(
        "/silences/",
        {
            "do": "silence",
            "duration": "2 h",
            "matchers": "kind=proxy",
            "reason": "upgrade",
            "creator": "mallory",
        },
    )
    row = Silence.objects.get()
    assert (row.creator, row.cluster, round(row.ends_at - row.starts_at)) == ("operator", "default", 7200)
    for do in ("extend", "end"):
        operator.post("/silences/", {"do": do, "id": row.pk})
    actions = list(AuditEntry.objects.order_by("pk").values_list("action", "actor_name"))
    assert actions == [
        ("silence.create", "operator"),
        ("silence.extend", "operator"),
        ("silence.end", "operator"),
    ]
    assert "upgrade" in operator.get("/silences/").content.decode()


def test_silence_of_an_instance_shows_its_name(operator: Client) -> None:
    """The matcher keeps the key, which has the id of the instance."""
    ensure_default_cluster()
    Incident.objects.create(
        cluster_id="default", key="proxy/90569a4c", cause_kind="proxy", cause_id="90569a4c", cause_name="proxy-1",
        generation=1, state="firing", severity=2, opened_at=1.0,
    )  # fmt: skip
    form = {
        "do": "silence",
        "duration": "2 h",
        "matchers": "cause=proxy/90569a4c kind=proxy",
        "reason": "move",
    }
    operator.post("/silences/", form)
    page = operator.get("/silences/").content.decode()
    assert Silence.objects.get().matchers == "cause=proxy/90569a4c kind=proxy"
    assert "<code>cause=proxy-1 kind=proxy</code>" in page


def test_silence_begins_later_and_is_dropped_before(operator: Client) -> None:
    """A moment in UTC; one that is past is refused with what was typed; what is dropped never was."""
    form = {"do": "silence", "duration": "2 h", "matchers": "kind=proxy", "reason": "move"}
    begins = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(days=3)
    operator.post("/silences/", form | {"starts": begins.strftime("%Y-%m-%dT%H:%M")})
    row = Silence.objects.get()
    assert (row.starts_at, row.ends_at) == (begins.timestamp(), begins.timestamp() + 7200)
    page = operator.get("/silences/").content.decode()
    assert ">scheduled</b>" in page
    assert "No silences." in page
    late = operator.post("/silences/", form | {"starts": "2020-01-01T00:00"}).content.decode()
    assert "A silence must start now or within the next 90 days." in late
    assert 'value="2020-01-01T00:00"' in late
    operator.post("/silences/", {"do": "end", "id": row.pk})
    assert ">scheduled</b>" not in operator.get("/silences/").content.decode()


def test_silencing_everything_requires_typed_confirmation(operator: Client) -> None:
    """Refused with a sentence, then taken. The help texts of both forms say the same as the refusal."""
    page = operator.get("/silences/").content.decode()
    assert page.count("Required only if the matchers silence everything or almost everything.") == 2
    form = {"do": "silence", "duration": "1 h", "matchers": "", "reason": "x"}
    assert "Enter the word “everything” as confirmation" in operator.post("/silences/", form).content.decode()
    assert not Silence.objects.exists()
    operator.post("/silences/", form | {"confirmation": "everything"})
    assert Silence.objects.count() == 1


def test_help_of_matchers_marks_what_to_type(operator: Client) -> None:
    """Without the marks, the asterisk after an example looked like a part of it."""
    page = operator.get("/silences/").content.decode()
    assert (
        page.count("<code>agent=web-* agent_set=lab</code>. The character <code>*</code> matches any text")
        == 2
    )


def test_window_is_planned_with_its_next_times(operator: Client) -> None:
    """A rule, a zone, wall-clock time; nonsense is refused."""
    form = {
        "do": "window", "name": "night", "matchers": "kind=proxy", "rule": "FREQ=DAILY", "first_day": "2026-01-01",
        "start_time": "22:00", "time_zone": "Europe/Berlin", "reason": "backups", "duration": "8 h",
    }  # fmt: skip
    for wrong in (
        {"time_zone": "Mars/Base"},
        {"rule": "FREQ=NEVER"},
        {"duration": "90 h"},
        {"matchers": ""},
        {"rule": "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30"},
        {"first_day": "0001-01-01"},
    ):
        page = operator.post("/silences/", form | wrong).content.decode()
        assert ("These matchers silence everything or almost everything." in page) == ("matchers" in wrong)
        assert not MaintenanceWindow.objects.exists()
    operator.post("/silences/", form)
    assert MaintenanceWindow.objects.get().creator == "operator"
    page = operator.get("/silences/").content.decode()
    assert "22:00 for 8 h, Europe/Berlin" in page
    assert page.count(" UTC</div>") == 3


def test_viewer_may_not_silence(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """No form, and refused."""
    client.force_login(person("viewer"))
    assert "New silence" not in client.get("/silences/").content.decode()
    assert client.post("/silences/", {"do": "silence"}).status_code == 403


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
    assert page.count('value="extend"') == 1
    assert page.count('value="switch"') == 1
    for owner, status in (("", 403), ("default", 404), ("other", 302)):
        silence, window = rows[owner]
        for do, row in (("extend", silence), ("switch", window), ("remove", window), ("end", silence)):
            answer = client.post("/c/other/silences/", {"do": do, "id": row.pk})
            assert answer.status_code == status, (owner, do)
    assert [row.cluster for row in MaintenanceWindow.objects.order_by("cluster")] == ["", "default"]
    assert (
        not Silence.objects.filter(ends_at__lte=datetime.now(UTC).timestamp())
        .exclude(cluster="other")
        .exists()
    )


def test_second_silence_of_the_same_is_refused(operator: Client) -> None:
    """Refused with a message that says what to do."""
    form = {"do": "silence", "duration": "2 h", "matchers": "kind=proxy", "reason": "move"}
    operator.post("/silences/", form)
    page = operator.post("/silences/", form).content.decode()
    assert "covers this until" in page
    assert "Extend that silence instead" in page
    assert Silence.objects.count() == 1
