from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from dashboards.sign_in import role_of
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
    """Nobody can make an account for himself."""
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


def test_second_factor_is_not_added_without_proving_again(client: Client, person: MakeUser) -> None:
    """A session left open on a desk cannot add a factor."""
    client.force_login(person("viewer"))
    answer = client.get("/accounts/2fa/totp/activate/")
    assert answer["Location"].startswith("/accounts/reauthenticate/")


def test_role_of_claims(settings: Settings) -> None:
    """The strongest mapped group wins; without one, the default; without that, nothing."""
    settings.REFLOAT_OIDC_ROLES = (("viewer", "staff"), ("config admin", "sre"))
    settings.REFLOAT_OIDC_DEFAULT_ROLE = ""
    assert role_of({"groups": ["staff", "sre"]}) == "config admin"
    assert role_of({"groups": "staff"}) == "viewer"
    assert role_of({}) == ""
    settings.REFLOAT_OIDC_DEFAULT_ROLE = "viewer"
    assert role_of({"groups": ["other"]}) == "viewer"
