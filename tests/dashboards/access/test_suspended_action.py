"""The page that asks for proof again names the action it is for, and leads back."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from fleet.models.changes import Change
from fleet.models.clusters import ensure_default_cluster
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(client: Client, person: MakeUser) -> Client:
    """A browser whose user signed in long ago."""
    ensure_default_cluster()
    client.force_login(person("config admin"))
    return client


def _read_page(client: Client, location: str) -> tuple[str, str]:
    """Return the action that the page names, and the path of *Cancel*."""
    html = client.get(location).content.decode()
    action = re.search(r'id="suspended-action">(.*?)</b>', html)
    back = re.search(r'id="cancel" href="(.*?)">Cancel</a>', html)
    assert back is not None
    return action[1] if action else "", back[1]


def test_confirmation_of_a_change(operator: Client) -> None:
    """With number and title of the change; Cancel leads to its page, also after a wrong password."""
    change = Change.objects.create(
        cluster_id="default",
        kind="reconnect",
        title="Reconnect 2 agents",
        actor_name="a",
        actor_kind="person",
    )
    path = f"/changes/{change.pk}/"
    location = operator.post(path, {"do": "confirm", "reason": "it is full"}).headers["Location"]
    shown_action = _read_page(operator, location)
    assert shown_action == (f"confirm change {change.pk}: Reconnect 2 agents", path)
    html = operator.post(location, {"password": "wrong", "next": path}).content.decode()
    assert "confirm change" in html
    assert f'id="cancel" href="{path}"' in html


def test_cancel_leads_to_the_page_that_sent_the_form(operator: Client) -> None:
    """A dialog belongs to the page below it; the page of another host does not count."""
    for referrer, back_path in (
        ("http://testserver/?state=stranded", "/?state=stranded"),
        ("http://example.org/changes/", "/tokens/"),
    ):
        location = operator.post(
            "/tokens/", {"name": "ci", "lifetime": "30"}, headers={"Referer": referrer}
        ).headers["Location"]
        assert _read_page(operator, location) == ("create or revoke API token", back_path)


@pytest.mark.parametrize(
    ("next_path", "text"),
    [
        ("/alerts/import/", "import an alerting configuration"),
        ("/accounts/2fa/totp/activate/", "add an authenticator app"),
        ("/nowhere/", ""),
        ("https://example.org/", ""),
        ("", ""),
    ],
)
def test_pages_that_ask_before_they_are_shown(operator: Client, next_path: str, text: str) -> None:
    """Pages without a name, and addresses of other hosts, get no name and no link."""
    shown_action = _read_page(operator, f"/accounts/reauthenticate/?next={next_path}")
    assert shown_action == (text, "/")


def test_request_of_another_page_is_not_named(operator: Client) -> None:
    """The session keeps the last one: a link to the page that asks for proof may be about something else."""
    operator.post("/tokens/", {"name": "ci"})
    text, _ = _read_page(operator, "/accounts/reauthenticate/?next=/alerts/import/")
    assert text == "import an alerting configuration"
