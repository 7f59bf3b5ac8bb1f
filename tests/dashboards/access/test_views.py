from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models.access import Permission
from fleet.models.changes import AuditEntry
from fleet.models.tokens import ApiToken, create_token, find_token
from tests.dashboards.conftest import MakeUser
from tests.fakes.locked import database_read_only

pytestmark = pytest.mark.django_db
FORM = {"name": "prometheus", "scopes": ["view_metrics"], "days": "30"}


@pytest.fixture
def proven_client(client: Client, person: MakeUser) -> Client:
    """A browser in which a viewer signed in and just proved it again."""
    client.force_login(person("viewer"))
    client.post("/accounts/reauthenticate/", {"password": "correct horse"})
    return client


def test_make_shows_the_secret_once(proven_client: Client) -> None:
    """The new token works; the next look at the page does not show it."""
    secret = proven_client.post("/tokens/", FORM).context["secret"]
    token = find_token(secret, timezone.now())
    assert token is not None
    assert AuditEntry.objects.get().action == "token.create"
    assert secret not in str(AuditEntry.objects.values().get())
    assert token.scopes == ["view_metrics"]
    again = proven_client.get("/tokens/")
    assert secret not in again.content.decode()
    assert [row.name for row in again.context["tokens"]] == ["prometheus"]


@pytest.mark.django_db(transaction=True)
def test_form_on_a_full_disk_is_a_503(proven_client: Client) -> None:
    """The page names the database, and offers to try again."""
    proven_client.raise_request_exception = False
    with database_read_only():
        answer = proven_client.post("/tokens/", FORM)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "Database unavailable" in answer.content.decode()
    assert not ApiToken.objects.exists()


def test_creating_a_token_requires_recent_proof(client: Client, person: MakeUser) -> None:
    """An old session cannot create a token; after the password the form works."""
    client.force_login(person("viewer"))
    answer = client.post("/tokens/", FORM)
    assert answer["Location"].startswith("/accounts/reauthenticate/")
    assert not ApiToken.objects.exists()
    client.post(answer["Location"], {"password": "correct horse"})
    assert ApiToken.objects.count() == 1


def test_scopes_end_at_ones_own_permissions(proven_client: Client) -> None:
    """A viewer cannot make a token that manages access; the form says so."""
    answer = proven_client.post("/tokens/", {**FORM, "scopes": ["manage_access"]})
    assert answer.context["form"].errors
    assert not ApiToken.objects.exists()


def test_revoke_own_token_and_no_other(client: Client, person: MakeUser) -> None:
    """Users revoke their own tokens; other tokens require the permission to manage access."""
    now = timezone.now()
    viewer, admin = person("viewer"), person("admin")
    own, _ = create_token(viewer, "own", [Permission.VIEW_FLEET], lifetime=None, now=now)
    foreign_token, _ = create_token(admin, "others", [Permission.VIEW_FLEET], lifetime=None, now=now)
    client.force_login(viewer)
    assert client.post("/tokens/", {"revoke": own.pk}).status_code == 302
    assert client.post("/tokens/", {"revoke": foreign_token.pk}).status_code == 404
    for nonsense in ("x", "1" * 5000, "9" * 19):
        assert client.post("/tokens/", {"revoke": nonsense}).status_code == 404
    own.refresh_from_db()
    foreign_token.refresh_from_db()
    assert own.revoked_at is not None
    assert foreign_token.revoked_at is None
    client.force_login(admin)
    assert len(client.get("/tokens/").context["tokens"]) == 2


def test_limited_admin_manages_no_access_of_others(
    client: Client, person: MakeUser, make_limited_user: MakeUser
) -> None:
    """Other users' tokens may reach every cluster: a limited admin sees and revokes only own tokens."""
    now = timezone.now()
    admin = make_limited_user("admin")
    own, _ = create_token(admin, "own", [Permission.VIEW_FLEET], lifetime=None, now=now)
    foreign_token, _ = create_token(
        person("admin"), "others", [Permission.VIEW_FLEET], lifetime=None, now=now
    )
    client.force_login(admin)
    assert [row.name for row in client.get("/tokens/").context["tokens"]] == ["own"]
    assert client.post("/tokens/", {"revoke": foreign_token.pk}).status_code == 404
    assert client.post("/tokens/", {"revoke": own.pk}).status_code == 302
