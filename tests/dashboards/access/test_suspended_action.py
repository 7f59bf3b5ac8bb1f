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
    # In the row of the button.
    assert re.search(
        r'class="panel-actions">((?!</div>).)*>\s*Confirm\s*</button>((?!</div>).)*id="cancel"',
        html,
        re.DOTALL,
    )


def test_confirmation_has_the_words_of_the_button(operator: Client) -> None:
    """Where the plan has them; other actions name the change by its title."""
    change = Change.objects.create(
        cluster_id="default", kind="reconnect", title="Reconnect 2 agents from a list, off proxy-1",
        plan={"action": "Move 2 agents off proxy-1"}, actor_name="a", actor_kind="person",
    )  # fmt: skip
    location = operator.post(f"/changes/{change.pk}/", {"do": "confirm", "reason": "full"}).headers[
        "Location"
    ]
    assert _read_page(operator, location)[0] == f"confirm change {change.pk}: Move 2 agents off proxy-1"


def test_cancel_keeps_what_was_typed(operator: Client) -> None:
    """The page of the change has the reason again; that of another change has none."""
    changes = [
        Change.objects.create(
            cluster_id="default", kind="retire", title=title, actor_name="a", actor_kind="person"
        )
        for title in ("Retire 2 agents", "Retire 3 agents")
    ]
    path, other_path = (f"/changes/{change.pk}/" for change in changes)
    assert operator.get(path).context["reason"] == ""
    location = operator.post(path, {"do": "confirm", "reason": "it is full"}).headers["Location"]
    _, back_path = _read_page(operator, location)
    assert "it is full</textarea>" in operator.get(back_path).content.decode()
    assert operator.get(other_path).context["reason"] == ""


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
    """A session stores one action: a later link to the page that asks for the password is about another."""
    operator.post("/tokens/", {"name": "ci"})
    text, _ = _read_page(operator, "/accounts/reauthenticate/?next=/alerts/import/")
    assert text == "import an alerting configuration"
