from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.models.alerting import Silence
from fleet.models.changes import AuditEntry
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser, reauthenticate
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

_FORM = {"do": "silence", "duration": "2 h", "matchers": "kind=proxy", "reason": "upgrade"}


@pytest.fixture
def operator(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser in which an operator is signed in."""
    ensure_default_cluster()
    client.force_login(person("operator"))
    reauthenticate(client)
    return client


def _post(client: Client, form: dict[str, Any], **changes: Any) -> str:
    return client.post("/silences/new/", form | changes, follow=True).content.decode()


def test_preview_shows_matching_incidents(operator: Client) -> None:
    """Agents by name; everything; and what cannot be read."""
    previews = [
        operator.get("/silences/preview", {"matchers": text}).content.decode()
        for text in ("agent=agent-*", "", "colour=red")
    ]
    assert "<b>4</b> agents" in previews[0]
    assert "Alert rules do not count matching agents until" in previews[0]
    assert "Without conditions everything matches:" in previews[1]
    assert "unknown field colour" in previews[2].lower()


def test_preview_includes_the_condition_that_is_being_typed(operator: Client) -> None:
    """It shows what *Add condition* would lead to."""
    query = {"condition_field": "agent", "condition_operator": "is", "condition_value": "agent-1"}
    assert "<b>1</b> agent and" in operator.get("/silences/preview", query).content.decode()


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


def test_silence_is_created_by_the_signed_in_user(operator: Client) -> None:
    """Its creator cannot be forged; it is in the log."""
    page = _post(operator, _FORM, creator="mallory")
    assert "Silenced until" in page
    row = Silence.objects.get()
    assert (row.creator, row.cluster, round(row.ends_at - row.starts_at)) == ("operator", "default", 7200)
    assert AuditEntry.objects.get().action == "silence.create"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reason": "x"}, "Enter a reason of at least 3 characters."),
        ({"reason": ""}, "Enter a reason of at least 3 characters."),
        ({"duration": "1 min"}, "Enter at least 3 min."),
        ({"period": "custom", "duration": ""}, "Enter a duration, for example 1 h 30 min."),
        ({"starts": "2020-01-01T00:00"}, "A silence must start now or within the next 90 days."),
        ({"matchers": "colour=red"}, "Unknown field colour"),
        ({"matchers": "agent=x\0"}, "Null characters are not allowed."),
        ({"condition_field": "agent", "condition_value": "web-1"}, "Match either agents"),
    ],
)
def test_refused_form_keeps_what_was_typed(operator: Client, changes: dict[str, str], message: str) -> None:
    """It is still the content of its dialog."""
    page = _post(operator, _FORM, **changes)
    assert message in page
    assert "data-dialog-body" in page
    assert not Silence.objects.exists()
    values = {**_FORM, **changes}
    assert f'value="{values["reason"]}"' in page or not values["reason"]
    assert values["matchers"].replace("\0", "") in page


def test_conditions_are_edited_without_scripts(operator: Client) -> None:
    """*Add condition* and *Remove* bring the form back with all other values and without errors."""
    form = {
        "do": "add",
        "reason": "up",
        "period": "28800",
        "condition_field": "agent",
        "condition_operator": "is",
    }
    page = _post(operator, form, condition_value='web "1" o\'clock')
    assert "errors" not in page
    assert 'value="up"' in page
    assert "Agent is <b>web &quot;1&quot; o&#x27;clock</b>" in page
    text = operator.post("/silences/new/", form | {"condition_value": "web-1"}).context["draft"].text
    conditions = {"condition": ["agent=web-1"], "matchers": text, "shown_matchers": text}
    page = _post(operator, {"remove": "agent=web-1", "reason": "up"} | conditions)
    assert "Remove the condition" not in page
    page = _post(operator, {"do": "silence", "reason": "upgrade", "period": "7200"} | conditions)
    assert Silence.objects.get().matchers == "agent=web-1"


def test_silence_until_tomorrow_is_in_the_time_zone_of_the_browser(operator: Client) -> None:
    """09:00 in New York, whatever the clocks in UTC say."""
    operator.cookies["refloat_zone"] = "America%2FNew_York"
    _post(operator, _FORM, period="tomorrow")
    ends_at = datetime.fromtimestamp(Silence.objects.get().ends_at, UTC)
    assert ends_at.strftime("%H:%M") in ("13:00", "14:00")


def test_silence_begins_later(operator: Client) -> None:
    """A moment in UTC."""
    begins = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(days=3)
    _post(operator, _FORM, starts=begins.strftime("%Y-%m-%dT%H:%M"))
    row = Silence.objects.get()
    assert (row.starts_at, row.ends_at) == (begins.timestamp(), begins.timestamp() + 7200)


def test_silencing_everything_requires_typed_confirmation(operator: Client) -> None:
    """Refused with a sentence, then taken. The field appears when it is needed."""
    assert "to silence everything" not in operator.get("/silences/new/").content.decode()
    form = _FORM | {"matchers": ""}
    page = _post(operator, form)
    assert "Enter the word “everything” as confirmation" in page
    assert "Type “everything” to silence everything" in page
    assert not Silence.objects.exists()
    _post(operator, form, confirmation="everything")
    assert Silence.objects.count() == 1


def test_second_silence_of_the_same_is_refused(operator: Client) -> None:
    """With a link to extend the first; the key of a cause and its name are the same."""
    Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/90569a4c", cause_kind="proxy", cause_id="90569a4c",
        cause_name="proxy-1", generation=1, state="firing", severity=2, opened_at=1.0,
    )  # fmt: skip
    _post(operator, _FORM, matchers="cause=proxy/90569a4c")
    page = _post(operator, _FORM, matchers="cause=proxy-1", reason="typed again")
    row = Silence.objects.get()
    assert "Already silenced until" in page
    assert f'href="/silences/{row.pk}/extend/" data-dialog' in page
    assert 'value="typed again"' in page
    _post(operator, _FORM, matchers="cause=proxy-2")
    assert Silence.objects.count() == 2


def test_silence_is_extended_from_the_end_that_was_seen(operator: Client) -> None:
    """The second of two people is told the new end, and extends from there."""
    _post(operator, _FORM)
    row = Silence.objects.get()
    url = f"/silences/{row.pk}/extend/"
    page = operator.get(url).content.decode()
    assert "kind of cause proxy" in page
    assert "Extend by 30 min" in page
    form = {"period": "1800", "seen_end": repr(row.ends_at)}
    assert operator.post(url, form)["Location"] == "/silences/"
    assert Silence.objects.get().ends_at == row.ends_at + 1800
    response = operator.post(url, form)
    assert "Out of date: somebody changed this silence" in response.content.decode()
    assert Silence.objects.get().ends_at == row.ends_at + 1800
    operator.post(url, form | {"seen_end": response.context["seen_end"]})
    assert Silence.objects.get().ends_at == row.ends_at + 3600
    page = operator.post(url, {"period": "custom", "duration": ""}).content.decode()
    assert "Enter a duration" in page
    assert (
        "must end within the next 30 days"
        in operator.post(url, {"duration": "719 h 59 min"}).content.decode()
    )


def test_ended_silence_is_not_extended(operator: Client) -> None:
    """The page offers a new one with the same conditions and reason."""
    _post(operator, _FORM)
    row = Silence.objects.get()
    Silence.objects.update(starts_at=1.0, ends_at=2.0)
    page = operator.post(f"/silences/{row.pk}/extend/", {"period": "1800"}).content.decode()
    assert "Create a new silence instead" in page
    assert "/silences/new/?matchers=kind%3Dproxy&amp;reason=upgrade" in page
    assert Silence.objects.get().ends_at == 2.0


def test_extension_returns_to_the_incident(operator: Client) -> None:
    """From whose page it was opened; an unknown incident leads to the list."""
    incident = Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/1", cause_kind="proxy", cause_id="1", cause_name="proxy-1",
        generation=1, state="firing", severity=2, opened_at=1.0,
    )  # fmt: skip
    _post(operator, _FORM)
    url = f"/silences/{Silence.objects.get().pk}/extend/"
    assert (
        f'name="incident" value="{incident.pk}"'
        in operator.get(url, {"incident": incident.pk}).content.decode()
    )
    assert (
        operator.post(url, {"period": "1800", "incident": incident.pk})["Location"]
        == f"/incidents/{incident.pk}/"
    )
    assert operator.post(url, {"period": "1800", "incident": "999"})["Location"] == "/silences/"


def test_suggestions_are_json(operator: Client) -> None:
    """Values with labels."""
    query = {"condition_field": "agent", "condition_value": "agent-2"}
    assert operator.get("/silences/suggestions.json", query).json() == {
        "suggestions": [{"value": "agent-2", "label": ""}]
    }
