"""Single sign-on of a console with an identity provider in its settings, as a browser goes through it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from django.contrib.auth.models import User

from tests.fakes.identity import IdentityProvider, identity_provider
from tests.flow.web import Console, database, web_console

_TIMEOUT_SECONDS = 120


class Outcome(NamedTuple):
    """How a sign-in ended: the status of the last response, and whether the browser is shown a page."""

    status: int
    is_signed_in: bool


class SignOn(NamedTuple):
    """A console, and the identity provider that it trusts."""

    console: Console
    provider: IdentityProvider

    def sign_in(self) -> Outcome:
        """Click the button, be sent away, and come back with a code."""
        browser = requests.Session()
        form = browser.get(f"{self.console.url}/accounts/login/", timeout=_TIMEOUT_SECONDS).text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
        assert token is not None
        assert "Example" in form, "the button has the name of the provider"
        away = browser.post(
            f"{self.console.url}/accounts/oidc/oidc/login/",
            data={"csrfmiddlewaretoken": token[1]},
            headers={"Referer": f"{self.console.url}/accounts/login/"},
            allow_redirects=False,
            timeout=_TIMEOUT_SECONDS,
        ).headers["Location"]
        assert away.startswith(f"{self.provider.issuer}/authorize?")
        state = parse_qs(urlsplit(away).query)["state"][0]
        status = browser.get(
            f"{self.console.url}/accounts/oidc/oidc/login/callback/",
            params={"code": "c", "state": state},
            allow_redirects=False,
            timeout=_TIMEOUT_SECONDS,
        ).status_code
        page = browser.get(f"{self.console.url}/", allow_redirects=False, timeout=_TIMEOUT_SECONDS)
        return Outcome(status, page.status_code == 200)

    def user(self) -> tuple[str, str, bool, list[str]] | None:
        """Return name, address, whether there is a password, and roles of the only user of the provider, if any."""
        with database(self.console.home):
            user = User.objects.filter(is_superuser=False).first()
            if user is None:
                return None
            roles = [group.name for group in user.groups.all()]
            return user.username, user.email, user.has_usable_password(), roles


@pytest.fixture(scope="module")
def identity_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignOn]:
    """A console that gives the group `sre` the role operator, and `staff` the role viewer."""
    with identity_provider() as provider:
        settings = {
            "REFLOAT_OIDC_ISSUER": provider.issuer,
            "REFLOAT_OIDC_CLIENT_ID": "refloat",
            "REFLOAT_OIDC_CLIENT_SECRET": "s",
            "REFLOAT_OIDC_NAME": "Example",
            "REFLOAT_OIDC_ROLES": "operator=sre,viewer=staff",
        }
        with web_console(tmp_path_factory.mktemp("console"), settings) as console:
            yield SignOn(console, provider)


@pytest.fixture
def sign_on(identity_console: SignOn) -> SignOn:
    """The same without users, and the provider with a user of the group `sre`."""
    with database(identity_console.console.home):
        User.objects.filter(is_superuser=False).delete()
    identity_console.provider.exchanges.clear()
    identity_console.provider.claims = {
        "sub": "42",
        "preferred_username": "ada.l",
        "email": "ada@example.com",
        "groups": ["sre"],
    }
    return identity_console


def test_first_sign_in_makes_a_user_with_the_role(sign_on: SignOn) -> None:
    """Whoever the provider vouches for is a user at once, with PKCE, without a password, and with the group's role."""
    assert sign_on.sign_in() == (302, True)
    assert sign_on.user() == ("ada.l", "ada@example.com", False, ["operator"])
    assert "code_verifier" in sign_on.provider.exchanges[0]


def test_role_follows_the_groups(sign_on: SignOn) -> None:
    """At the next sign-in the role is what the groups give then."""
    sign_on.sign_in()
    sign_on.provider.claims["groups"] = ["staff"]
    sign_on.sign_in()
    assert sign_on.user() == ("ada.l", "ada@example.com", False, ["viewer"])


def test_user_without_a_role_is_refused(sign_on: SignOn) -> None:
    """Groups that give no role make no user."""
    sign_on.provider.claims["groups"] = ["guests"]
    assert sign_on.sign_in() == (403, False)
    assert sign_on.user() is None


def test_removed_user_loses_the_role(sign_on: SignOn) -> None:
    """The sign-in is refused, and the role of tokens and sockets is removed."""
    sign_on.sign_in()
    sign_on.provider.claims["groups"] = []
    assert sign_on.sign_in() == (403, False)
    assert sign_on.user() == ("ada.l", "ada@example.com", False, [])
