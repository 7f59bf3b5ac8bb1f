from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleet.first_run import create_setup_token

pytestmark = pytest.mark.django_db
_FORM = {"username": "ada", "password": "correct horse battery", "password_again": "correct horse battery"}


def test_link_leads_to_a_signed_in_administrator(client: Client) -> None:
    """Once: the second visitor finds nothing."""
    path = f"/setup/{create_setup_token()}/"
    page = client.get(path)
    assert page.status_code == 200
    assert "no-store" in page["Cache-Control"]
    response = client.post(path, _FORM)
    assert (response.status_code, response["Location"]) == (302, "/clusters/default/edit/?setup=1")
    assert client.get("/tokens/").status_code == 200
    assert client.get("/alerts/channels/new/webhook/").status_code == 200, "no other proof is needed"
    assert client.get(response["Location"]).status_code == 200
    assert (
        Client().get(path).status_code == Client().post(path, _FORM | {"username": "bob"}).status_code == 404
    )
    assert list(User.objects.values_list("username", flat=True)) == ["ada"]


def test_spaces_around_a_password_are_part_of_it(client: Client) -> None:
    """As at every sign-in."""
    password = " correct horse battery "
    form = _FORM | {"password": password, "password_again": password}
    assert client.post(f"/setup/{create_setup_token()}/", form).status_code == 302
    assert User.objects.get().check_password(password)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"password_again": "another"}, "The passwords differ."),
        ({"password": "12345678", "password_again": "12345678"}, "This password is too common."),
        ({"username": ""}, "This field is required."),
        ({"username": "a b"}, "Enter a valid username."),
    ],
)
def test_mistake_is_named_and_creates_nobody(client: Client, change: dict[str, str], error: str) -> None:
    """At its field; the name that was typed stays, the password does not."""
    page = client.post(f"/setup/{create_setup_token()}/", _FORM | change).content.decode()
    assert error in page
    assert "correct horse" not in page
    assert not User.objects.exists()


def test_wrong_link_is_not_found(client: Client) -> None:
    assert client.get("/setup/guess/").status_code == 404


def test_sign_in_page_says_how_to_begin(client: Client) -> None:
    """Only while there are no users."""
    assert "There are no users yet." in client.get("/accounts/login/").content.decode()
    User.objects.create_user("ada")
    page = client.get("/accounts/login/").content.decode()
    assert "There are no users yet." not in page
    assert "Ask an administrator" in page
