from __future__ import annotations

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from fleet.models.alerting import Channel, Silence
from fleet.models.changes import Change
from fleet.models.clusters import ensure_default_cluster
from tests.dashboards.conftest import MakeUser, prove
from tests.fakes.reader import FakeReader

pytestmark = pytest.mark.django_db

_EVERYTHING = {"do": "silence", "hours": "1", "matchers": "", "typed": "everything", "reason": "move"}
_HOOK = {
    "name": "ops", "kind": "webhook", "per_minute": "10", "url": "https://hooks.example.com/T0/s3cret",
    "secret": "s3cret-key", "do": "save",
}  # fmt: skip


@pytest.fixture
def unproven(client: Client, person: MakeUser, fake_reader: FakeReader) -> Client:
    """A browser in which an admin signed in long ago."""
    ensure_default_cluster()
    client.force_login(person("admin"))
    return client


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/alerts/channels/0/", _HOOK),
        ("/alerts/routes/0/", {"name": "night", "position": "0", "least": "1"}),
        ("/alerts/rules/0/", {"name": "mine", "do": "save"}),
        ("/alerts/rules/", {"do": "import", "document": "rules: [{name: a, kind: drift, severity: info}]"}),
        ("/silences/", _EVERYTHING),
        ("/instances/proxy-id-1/drain/", {"wanted": "drain", "reason": "kernel", "sure": "on"}),
        ("/agents/id-0/retire/", {"wanted": "retire", "reason": "scrapped", "sure": "on"}),
    ],
)
def test_what_outlives_a_session_asks_for_proof(unproven: Client, path: str, form: dict[str, str]) -> None:
    """Nothing is done, and the page asks who it is."""
    answer = unproven.post(path, form)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/accounts/reauthenticate/?next=%2F")


def test_what_helps_at_night_asks_for_none(unproven: Client) -> None:
    """A silence of something, and its end."""
    unproven.post("/silences/", _EVERYTHING | {"matchers": "cause=proxy-1", "typed": ""})
    silence = Silence.objects.get()
    unproven.post("/silences/", {"do": "end", "id": silence.pk})
    silence.refresh_from_db()
    assert silence.ends_at < silence.starts_at + 3600


def test_request_is_repeated_after_the_proof(unproven: Client) -> None:
    """What was typed is not lost."""
    answer = unproven.post("/silences/", _EVERYTHING)
    unproven.post(answer["Location"], {"password": "correct horse"})
    assert Silence.objects.get().reason == "move"


def test_secret_of_a_form_is_not_kept_in_the_session(unproven: Client) -> None:
    """So the page of a channel asks before it shows its form, and a form that comes too late is typed again."""
    assert unproven.get("/alerts/channels/0/")["Location"].startswith("/accounts/reauthenticate/")
    answer = unproven.post("/alerts/channels/0/", _HOOK)
    assert not any("s3cret" in str(row.get_decoded()) for row in Session.objects.all())
    assert (
        unproven.post(answer["Location"], {"password": "correct horse"})["Location"] == "/alerts/channels/0/"
    )
    assert not Channel.objects.exists()
    unproven.post("/alerts/channels/0/", _HOOK)
    assert Channel.objects.get().name == "ops"


def test_api_asks_a_session_and_no_token(unproven: Client) -> None:
    """For retiring, and for silencing everything."""
    bodies = {
        "/api/v1/silences": {"matchers": "", "reason": "move", "typed": "everything"},
        "/api/v1/agents/id-0/retire": {"retired": True, "reason": "scrapped", "alive": True},
    }
    for path, body in bodies.items():
        answer = unproven.post(path, body, content_type="application/json")
        assert answer.status_code == 403
        assert "Confirm your identity again" in answer.json()["detail"]
    prove(unproven)
    answer = unproven.post("/api/v1/silences", bodies["/api/v1/silences"], content_type="application/json")
    assert answer.status_code == 201


def test_change_goes_on_with_proof_and_stops_without(unproven: Client) -> None:
    """What moves agents or restarts instances again is asked for; what ends it must be quick."""
    change = Change.objects.create(
        cluster=ensure_default_cluster(),
        kind="policy",
        title="x",
        who="a",
        actor_kind="person",
        state="paused",
    )
    answer = unproven.post(f"/changes/{change.pk}/", {"do": "resume"})
    assert answer["Location"].startswith("/accounts/reauthenticate/")
    change.refresh_from_db()
    assert change.state == "paused"
    unproven.post(f"/changes/{change.pk}/", {"do": "abort"})
    change.refresh_from_db()
    assert change.state == "cancelled"


def test_page_of_a_channel_says_truly_whether_a_secret_is_kept(unproven: Client) -> None:
    """The address of a webhook is sealed like its key, and is no key: a change of host removes that."""
    prove(unproven)
    unproven.post("/alerts/channels/0/", _HOOK)
    page = f"/alerts/channels/{Channel.objects.get().pk}/"
    assert "stored; type to replace" in unproven.get(page).content.decode()
    unproven.post(page, _HOOK | {"url": "https://elsewhere.example.com/", "secret": ""})
    assert "stored; type to replace" not in unproven.get(page).content.decode()
