from __future__ import annotations

import time

import pytest
from django.test import Client

from fleet.models.alerting import Channel, Delivery, Silence
from fleet.models.clusters import ensure_default_cluster
from fleet.models.incidents import Incident, IncidentEvent
from tests.dashboards.conftest import MakeUser
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db


@pytest.fixture
def incident() -> Incident:
    """An incident whose cause has an id that nobody should read."""
    return Incident.objects.create(
        cluster=ensure_default_cluster(), key="proxy/90569a4c", cause_kind="proxy", cause_id="90569a4c",
        cause_name="proxy-1", generation=1, state="firing", severity=2, opened_at=time.time() - 60,
        notification_count=1, notified_at=time.time() - 30,
    )  # fmt: skip


@pytest.fixture
def operator(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser in which an operator is signed in."""
    client.force_login(person("operator"))
    return client


def test_dialog_says_what_a_silence_does(operator: Client, incident: Incident) -> None:
    """A GET changes nothing. Whom the resolution is sent to, and why."""
    channel = Channel.objects.create(name="ops-hook", kind="webhook")
    Delivery.objects.create(
        channel=channel, incident=incident, cluster="default", key="k", kind="firing", payload={}, created_at=1.0,
        next_attempt_at=1.0, sent_at=2.0,
    )  # fmt: skip
    page = operator.get(f"/incidents/{incident.pk}/silence/").content.decode()
    assert "No new notifications about proxy-1 until" in page
    assert (
        "is still sent to ops-hook, because ops-hook was notified and may keep an alert open until then."
        in page
    )
    assert "90569a4c" not in page
    assert "autofocus" in page
    preview = operator.get(
        "/silences/preview", {"incident": incident.pk, "period": "tomorrow"}
    ).content.decode()
    assert "09:00 UTC" in preview
    assert not Silence.objects.exists()


def test_cause_is_silenced_for_the_chosen_time(operator: Client, incident: Incident) -> None:
    """With its key, so that another instance of the same name is not silenced; the timeline has the duration."""
    url = f"/incidents/{incident.pk}/silence/"
    page = operator.post(url, {"period": "7200", "reason": "new disks"}, follow=True).content.decode()
    assert "No new notifications about proxy-1 until" in page
    row = Silence.objects.get()
    assert (row.matchers, row.reason, row.creator) == ("cause=proxy/90569a4c", "new disks", "operator")
    assert round(row.ends_at - row.starts_at) == 7200
    assert IncidentEvent.objects.get().text == "operator silenced the incident for 2 h: new disks"


def test_page_of_a_silenced_incident_says_what_is_still_sent(operator: Client, incident: Incident) -> None:
    """While notifications wait in the outbox, with their channel; and there is one way to extend the silence."""
    channel = Channel.objects.create(name="ops-hook", kind="webhook")
    delivery = Delivery.objects.create(
        channel=channel, incident=incident, cluster="default", key="k", kind="repeat", payload={}, created_at=1.0,
        next_attempt_at=1.0,
    )  # fmt: skip
    operator.post(f"/incidents/{incident.pk}/silence/", {"period": "7200", "reason": "new disks"})
    url, sentence = (
        f"/incidents/{incident.pk}/",
        "1 notification that is already queued is still sent to ops-hook.",
    )
    page = operator.get(url).content.decode()
    assert sentence in page
    assert page.count("/extend/?incident=") == 1
    assert "Silence… <kbd>s</kbd>" not in page
    Delivery.objects.filter(pk=delivery.pk).update(sent_at=5.0)
    assert sentence not in operator.get(url).content.decode()


def test_end_of_a_silence_has_a_label_of_its_own(operator: Client, incident: Incident) -> None:
    """The timeline does not call it silenced."""
    operator.post(f"/incidents/{incident.pk}/silence/", {"period": "7200", "reason": "new disks"})
    operator.post(f"/incidents/{incident.pk}/", {"do": "end-silence", "id": Silence.objects.get().pk})
    events = operator.get(f"/incidents/{incident.pk}/").context["events"]
    assert [event["label"] for event in events] == ["silence ended", "silenced"]


def test_morning_of_tomorrow_has_its_time_zone(operator: Client, incident: Incident) -> None:
    """That of the browser, beside the choice."""
    operator.cookies["refloat_zone"] = "Europe%2FBerlin"
    page = operator.get(f"/incidents/{incident.pk}/silence/").content.decode()
    assert "Until tomorrow 09:00 Europe/Berlin" in page


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"period": "7200", "reason": "x"}, "Enter a reason of at least 3 characters."),
        ({"period": "custom", "duration": "31 d", "reason": "new disks"}, "Enter at most 720 h."),
        ({"period": "soon", "reason": "new disks"}, "soon is not one of the available choices"),
    ],
)
def test_refused_form_stays_in_its_dialog(
    operator: Client, incident: Incident, form: dict[str, str], message: str
) -> None:
    """With what was typed."""
    page = operator.post(f"/incidents/{incident.pk}/silence/", form).content.decode()
    assert message in page
    assert "data-dialog-body" in page
    assert f'value="{form["reason"]}"' in page
    assert not Silence.objects.exists()


def test_second_silence_leads_to_the_first(operator: Client, incident: Incident) -> None:
    """Somebody else was quicker: the link extends that silence, and the reason is not lost."""
    url = f"/incidents/{incident.pk}/silence/"
    operator.post(url, {"reason": "new disks"})
    page = operator.post(url, {"reason": "other disks"}).content.decode()
    row = Silence.objects.get()
    assert f"/silences/{row.pk}/extend/?incident={incident.pk}" in page
    assert 'value="other disks"' in page


def test_acknowledgement_is_asked_for_and_made_once(operator: Client, incident: Incident) -> None:
    """The second of two people is told who was first."""
    url = f"/incidents/{incident.pk}/acknowledge/"
    assert "Acknowledge incident</button>" in operator.get(url).content.decode()
    assert not IncidentEvent.objects.exists()
    assert "You acknowledged the incident." in operator.post(url, follow=True).content.decode()
    page = operator.post(url, follow=True).content.decode()
    assert "Nothing changed: the incident was acknowledged by operator already." in page
    assert "operator acknowledged this incident at" in operator.get(url).content.decode()
    assert IncidentEvent.objects.count() == 1


def test_resolved_incident_needs_neither(operator: Client, incident: Incident) -> None:
    """A link in an old notification says so."""
    Incident.objects.update(state="resolved", resolved_at=time.time())
    for dialog in ("silence", "acknowledge"):
        url = f"/incidents/{incident.pk}/{dialog}/"
        page = operator.get(url).content.decode()
        assert "This incident is resolved" in page
        assert '<form method="post" action="/incidents' not in page
        operator.post(url, {"reason": "new disks"})
    assert not Silence.objects.exists()
    assert not IncidentEvent.objects.exists()
    assert operator.get("/incidents/999/silence/").status_code == 404


def test_viewer_is_refused(
    client: Client, person: MakeUser, fake_reader: FakeReader, incident: Incident
) -> None:
    """The dialogs are for operators."""
    client.force_login(person("viewer"))
    for dialog in ("silence", "acknowledge"):
        assert client.get(f"/incidents/{incident.pk}/{dialog}/").status_code == 403
        assert client.post(f"/incidents/{incident.pk}/{dialog}/").status_code == 403


@pytest.mark.parametrize("dialog", ["silence", "acknowledge"])
def test_address_opens_a_dialog_and_changes_nothing(
    client: Client, person: MakeUser, fake_reader: FakeReader, incident: Incident, dialog: str
) -> None:
    """A link of a notification; without scripts, it leads to the form. A viewer is told why there is none."""
    client.force_login(person("operator"))
    url = f"/incidents/{incident.pk}/"
    page = client.get(url, {"open": dialog}).content.decode()
    assert f'id="open-dialog" hidden data-dialog href="{url}{dialog}/"' in page
    assert "open-dialog" not in client.get(url, {"open": "elsewhere"}).content.decode()
    client.force_login(person("viewer"))
    page = client.get(url, {"open": dialog}).content.decode()
    assert f"Not allowed: to {dialog} an incident, you need the role operator." in page
    assert "open-dialog" not in page
    assert not Silence.objects.exists()
    assert not IncidentEvent.objects.exists()
