from __future__ import annotations

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from fleet.models.alerting import Channel, Silence
from fleet.models.changes import Change
from fleet.models.clusters import ensure_default_cluster
from tests.dashboards.conftest import MakeUser, reauthenticate
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

_EVERYTHING = {
    "do": "silence",
    "duration": "1 h",
    "matchers": "",
    "confirmation": "everything",
    "reason": "move",
}
_HOOK = {
    "name": "ops", "kind": "webhook", "per_minute": "10", "url": "https://hooks.example.com/T0/s3cret",
    "secret": "s3cret-key", "do": "save",
}  # fmt: skip


@pytest.fixture
def unproven_client(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser in which an admin signed in long ago."""
    ensure_default_cluster()
    client.force_login(person("admin"))
    return client


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/alerts/channels/new/webhook/", _HOOK),
        ("/alerts/routes/0/", {"name": "night", "position": "0", "min_severity": "1"}),
        ("/alerts/rules/0/", {"name": "mine", "do": "save"}),
        ("/alerts/rules/", {"do": "import", "document": "rules: [{name: a, kind: drift, severity: info}]"}),
        ("/silences/new/", _EVERYTHING),
        ("/instances/proxy-id-1/service/", {"action": "take-out", "reason": "kernel", "sure": "on"}),
        ("/agents/id-0/retire/", {"action": "retire", "reason": "scrapped", "sure": "on"}),
    ],
)
def test_lasting_actions_require_recent_proof(
    unproven_client: Client, path: str, form: dict[str, str]
) -> None:
    """The action is not run, and the page asks for the password."""
    answer = unproven_client.post(path, form)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/accounts/reauthenticate/?next=%2F")


def test_silences_require_no_recent_proof(unproven_client: Client) -> None:
    """Creating and ending a silence with matchers."""
    unproven_client.post("/silences/new/", _EVERYTHING | {"matchers": "cause=proxy-1", "confirmation": ""})
    silence = Silence.objects.get()
    unproven_client.post("/silences/", {"do": "end", "id": silence.pk})
    silence.refresh_from_db()
    assert silence.ends_at < silence.starts_at + 3600


def test_request_is_repeated_after_the_proof(unproven_client: Client) -> None:
    """What was typed is not lost."""
    answer = unproven_client.post("/silences/new/", _EVERYTHING)
    unproven_client.post(answer["Location"], {"password": "correct horse"})
    assert Silence.objects.get().reason == "move"


def test_secret_of_a_form_is_not_kept_in_the_session(unproven_client: Client) -> None:
    """So the page of a channel asks before it shows its form, and a form that comes too late is typed again."""
    assert unproven_client.get("/alerts/channels/new/webhook/")["Location"].startswith(
        "/accounts/reauthenticate/"
    )
    answer = unproven_client.post("/alerts/channels/new/webhook/", _HOOK)
    assert not any("s3cret" in str(row.get_decoded()) for row in Session.objects.all())
    assert (
        unproven_client.post(answer["Location"], {"password": "correct horse"})["Location"]
        == "/alerts/channels/new/webhook/"
    )
    assert not Channel.objects.exists()
    unproven_client.post("/alerts/channels/new/webhook/", _HOOK)
    assert Channel.objects.get().name == "ops"


def test_api_requires_recent_proof_of_a_session_not_of_a_token(unproven_client: Client) -> None:
    """For retiring, and for silencing everything."""
    bodies = {
        "/api/v1/silences": {"matchers": "", "reason": "move", "confirmation": "everything"},
        "/api/v1/agents/id-0/retire": {"is_retired": True, "reason": "scrapped", "confirm_alive": True},
    }
    for path, body in bodies.items():
        answer = unproven_client.post(path, body, content_type="application/json")
        assert answer.status_code == 403
        assert "Confirm your identity again" in answer.json()["detail"]
    reauthenticate(unproven_client)
    answer = unproven_client.post(
        "/api/v1/silences", bodies["/api/v1/silences"], content_type="application/json"
    )
    assert answer.status_code == 201


def test_change_resumes_with_recent_proof_and_pauses_without(unproven_client: Client) -> None:
    """Proof is required to move agents or restart instances; stopping must be quick."""
    change = Change.objects.create(
        cluster=ensure_default_cluster(),
        kind="policy",
        title="x",
        actor_name="a",
        actor_kind="person",
        state="paused",
    )
    answer = unproven_client.post(f"/changes/{change.pk}/", {"do": "resume"})
    assert answer["Location"].startswith("/accounts/reauthenticate/")
    change.refresh_from_db()
    assert change.state == "paused"
    unproven_client.post(f"/changes/{change.pk}/", {"do": "abort"})
    change.refresh_from_db()
    assert change.state == "cancelled"


def test_channel_page_shows_whether_a_secret_is_stored(unproven_client: Client) -> None:
    """The address of a webhook is sealed like its key, and is no key: with another host, the key can be removed."""
    reauthenticate(unproven_client)
    unproven_client.post("/alerts/channels/new/webhook/", _HOOK)
    page = f"/alerts/channels/{Channel.objects.get().pk}/"
    assert "Stored. Enter the new value" in unproven_client.get(page).content.decode()
    unproven_client.post(
        page, _HOOK | {"url": "https://elsewhere.example.com/", "secret": "", "remove_secret": "on"}
    )
    assert "Stored. Enter the new value" not in unproven_client.get(page).content.decode()
