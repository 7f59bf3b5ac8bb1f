from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from dashboards.access.sign_in import role_of
from dashboards.shared import refusals
from tests.dashboards.conftest import MakeUser

pytestmark = pytest.mark.django_db


def test_login_page_opens_and_signs_in(client: Client, person: MakeUser) -> None:
    """The page shows a form; the right password leads to the page asked for."""
    user = person("viewer")
    assert b'name="password"' in client.get("/accounts/login/").content
    answer = client.post("/accounts/login/?next=/map/", {"login": user.username, "password": "correct horse"})
    assert answer.status_code == 302
    assert answer["Location"] == "/map/"


def test_wrong_password_stays_out(client: Client, person: MakeUser) -> None:
    """A wrong password shows the form again."""
    person("viewer")
    answer = client.post("/accounts/login/", {"login": "viewer", "password": "wrong"})
    assert answer.status_code == 200
    assert "_auth_user_id" not in client.session


def test_sign_up_is_closed(client: Client) -> None:
    """Users cannot create their own account."""
    fields = {"username": "eve", "password1": "correct horse 9", "password2": "correct horse 9"}
    client.post("/accounts/signup/", fields)
    assert not User.objects.exists()


@pytest.mark.parametrize("path", ["", "totp/activate/", "webauthn/add/", "webauthn/"])
def test_second_factor_pages_after_proving_again(client: Client, person: MakeUser, path: str) -> None:
    """TOTP, passkeys and recovery codes have their pages; changing any asks for the password once more."""
    user = person("viewer")
    client.post("/accounts/login/", {"login": user.username, "password": "correct horse"})
    answer = client.post(
        f"/accounts/reauthenticate/?next=/accounts/2fa/{path}", {"password": "correct horse"}
    )
    assert answer["Location"] == f"/accounts/2fa/{path}"
    assert client.get(f"/accounts/2fa/{path}").status_code == 200


def test_recent_sign_in_counts_as_proof(client: Client, person: MakeUser, settings: Settings) -> None:
    """Until it is too long ago."""
    user = person("viewer")
    client.post("/accounts/login/", {"login": user.username, "password": "correct horse"})
    assert client.get("/accounts/2fa/totp/activate/").status_code == 200
    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 0
    answer = client.get("/accounts/2fa/totp/activate/")
    assert answer["Location"].startswith("/accounts/reauthenticate/")


def test_second_factor_is_not_added_without_proving_again(client: Client, person: MakeUser) -> None:
    """A session left open on a desk cannot add a factor."""
    client.force_login(person("viewer"))
    answer = client.get("/accounts/2fa/totp/activate/")
    assert answer["Location"].startswith("/accounts/reauthenticate/")
    assert refusals.reason_of(answer.wsgi_request) == "the password must be entered again"


def test_role_of_claims(settings: Settings) -> None:
    """The strongest mapped group wins; without one, the default; without that, nothing."""
    settings.REFLOAT_OIDC_ROLES = (("viewer", "staff"), ("config admin", "sre"))
    settings.REFLOAT_OIDC_DEFAULT_ROLE = ""
    assert role_of({"groups": ["staff", "sre"]}) == "config admin"
    assert role_of({"groups": "staff"}) == "viewer"
    assert role_of({}) == ""
    settings.REFLOAT_OIDC_DEFAULT_ROLE = "viewer"
    assert role_of({"groups": ["other"]}) == "viewer"


@pytest.mark.parametrize(
    "url", ["http://localhost/x", "http://testserver:1/x", "//evil.example/", "https://trusted.example/"]
)
def test_next_leads_nowhere_else(client: Client, person: MakeUser, settings: Settings, url: str) -> None:
    """Other allowed hosts, other ports, trusted origins: people stay on the console they signed in to."""
    settings.ALLOWED_HOSTS = ["testserver", "localhost", ".trusted.example"]
    settings.CSRF_TRUSTED_ORIGINS = ["https://trusted.example"]
    user = person("viewer")
    answer = client.post(
        f"/accounts/login/?next={url}", {"login": user.username, "password": "correct horse"}
    )
    assert answer["Location"] == "/"


def test_next_at_the_same_host_is_followed(client: Client, person: MakeUser) -> None:
    """The whole address of a page, with its host, is allowed as well."""
    user = person("viewer")
    fields = {"login": user.username, "password": "correct horse"}
    answer = client.post("/accounts/login/?next=http://testserver/map/", fields)
    assert answer["Location"] == "http://testserver/map/"


def _submit_password(client: Client, password: str, address: str) -> bool:
    fields = {"login": "viewer", "password": password}
    return client.post("/accounts/login/", fields, REMOTE_ADDR=address).status_code == 302


@pytest.mark.parametrize(
    ("stranger", "own", "locked_username"),
    [
        ("203.0.113.7", "198.51.100.1", False),
        ("203.0.113.7", "203.0.113.7", True),
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:0:8000::1", True),
        ("2001:db8::1", "2001:db8:1::1", False),
    ],
)
def test_wrong_passwords_lock_an_account_for_their_address_alone(
    client: Client, person: MakeUser, stranger: str, own: str, locked_username: bool
) -> None:
    """After five of them: its owner signs in from elsewhere, whoever guesses does not go on."""
    person("viewer")
    for _ in range(5):
        assert not _submit_password(client, "wrong", stranger)
    assert not _submit_password(client, "correct horse", stranger)
    assert _submit_password(client, "correct horse", own) is not locked_username
