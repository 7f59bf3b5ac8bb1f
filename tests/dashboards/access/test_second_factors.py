"""Second factors from enrolment to sign-in: codes of an authenticator app, security keys and passkeys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth as totp
from django.contrib.auth.models import User
from django.test import Client

from tests.dashboards.conftest import MakeUser
from tests.fakes.security_key import SecurityKey

pytestmark = pytest.mark.django_db

AUTHENTICATE = "/accounts/2fa/authenticate/"
ADD_KEY = "/accounts/2fa/webauthn/add/"
LOGIN_BY_PASSKEY = "/accounts/2fa/webauthn/login/"
ACTIVATE_APP = "/accounts/2fa/totp/activate/"
#: Seconds for which a code of an authenticator app is valid (RFC 6238).
_PERIOD = 30


@pytest.fixture
def user(client: Client, person: MakeUser) -> User:
    """A user who is signed in."""
    viewer = person("viewer")
    assert _submit_password(client) == "/"
    return viewer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of codes, at the start of a period; `now` sets it."""
    simulated_clock = SimpleNamespace(now=1_800_000_000.0)
    monkeypatch.setattr(totp, "time", SimpleNamespace(time=lambda: simulated_clock.now))
    return simulated_clock


def _submit_password(client: Client) -> str:
    """Sign out, submit the right password and return where it leads."""
    client.post("/accounts/logout/")
    return str(client.post("/accounts/login/", {"login": "viewer", "password": "correct horse"})["Location"])


def _is_signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def _code(secret: str, now: float) -> str:
    return totp.format_hotp_value(totp.hotp_value(secret, int(now // _PERIOD)))


def _wrong(code: str) -> str:
    return f"{(int(code) + 1) % 1_000_000:06}"


def _add_app(client: Client, clock: SimpleNamespace) -> str:
    """Add an authenticator app and return its secret, which the page shows."""
    page = client.get(ACTIVATE_APP).content.decode()
    secret = str(client.session[totp.SECRET_SESSION_KEY])
    assert secret in page
    assert client.post(ACTIVATE_APP, {"code": _code(secret, clock.now)}).status_code == 302
    return secret


def _options(client: Client, path: str, name: str) -> dict[str, Any]:
    """Return the options that a page gives to the browser."""
    match = re.search(
        r'<script id="js_data" type="application/json">(.*?)</script>', client.get(path).content.decode()
    )
    assert match is not None, f"{path} has no options"
    options: dict[str, Any] = json.loads(match[1])[name]
    return options


def _add_key(client: Client, key: SecurityKey) -> bool:
    """Submit a new key; return whether the console has added it."""
    credential = key.create(_options(client, ADD_KEY, "creation_options"))
    fields = {"name": "key", "credential": json.dumps(credential)}
    client.post(ADD_KEY, fields | ({"passwordless": "on"} if key.is_passkey else {}))
    return Authenticator.objects.filter(type=Authenticator.Type.WEBAUTHN).exists()


def _passkey_options(client: Client) -> dict[str, Any]:
    answer = client.get(LOGIN_BY_PASSKEY, headers={"Accept": "application/json"})
    options: dict[str, Any] = answer.json()["request_options"]
    return options


def _submit_credential(client: Client, path: str, credential: dict[str, Any]) -> bool:
    """Submit the answer of a key; return whether it signs in."""
    client.post(path, {"credential": json.dumps(credential)})
    return _is_signed_in(client)


def _make_key(**fields: Any) -> SecurityKey:
    return SecurityKey(**{"relying_party": "testserver", "origin": "https://testserver", **fields})


def test_authenticator_app_is_added_with_a_right_code_only(
    client: Client, user: User, clock: SimpleNamespace
) -> None:
    client.get(ACTIVATE_APP)
    secret = str(client.session[totp.SECRET_SESSION_KEY])
    code = _code(secret, clock.now)
    assert client.post(ACTIVATE_APP, {"code": _wrong(code)}).status_code == 200
    assert not Authenticator.objects.exists()
    assert client.post(ACTIVATE_APP, {"code": code}).status_code == 302
    assert {row.type for row in Authenticator.objects.filter(user=user)} == {"totp", "recovery_codes"}


def test_sign_in_with_an_authenticator_app(client: Client, user: User, clock: SimpleNamespace) -> None:
    """The password alone does not sign in, nor does a wrong code, a code of earlier, or one that was used."""
    secret = _add_app(client, clock)
    clock.now += 10 * _PERIOD
    code = _code(secret, clock.now)
    assert _submit_password(client).startswith(AUTHENTICATE)
    assert client.get("/").status_code == 302
    for wrong_code in (_wrong(code), _code(secret, clock.now - 2 * _PERIOD), ""):
        client.post(AUTHENTICATE, {"code": wrong_code})
        assert not _is_signed_in(client)
    client.post(AUTHENTICATE, {"code": code})
    assert _is_signed_in(client)
    _submit_password(client)
    client.post(AUTHENTICATE, {"code": code})
    assert not _is_signed_in(client)
    clock.now += _PERIOD
    client.post(AUTHENTICATE, {"code": _code(secret, clock.now)})
    assert _is_signed_in(client)


def test_codes_cannot_be_guessed(client: Client, user: User, clock: SimpleNamespace) -> None:
    """After five wrong codes, the right one does not sign in either."""
    secret = _add_app(client, clock)
    clock.now += _PERIOD
    code = _code(secret, clock.now)
    _submit_password(client)
    for _ in range(5):
        client.post(AUTHENTICATE, {"code": _wrong(code)})
    client.post(AUTHENTICATE, {"code": code})
    assert not _is_signed_in(client)


def test_recovery_code_signs_in_once(client: Client, user: User, clock: SimpleNamespace) -> None:
    _add_app(client, clock)
    codes = Authenticator.objects.get(type=Authenticator.Type.RECOVERY_CODES).wrap().get_unused_codes()
    _submit_password(client)
    client.post(AUTHENTICATE, {"code": codes[0]})
    assert _is_signed_in(client)
    _submit_password(client)
    client.post(AUTHENTICATE, {"code": codes[0]})
    assert not _is_signed_in(client)


def test_sign_in_with_a_security_key(client: Client, user: User) -> None:
    """After the password. An answer that was sent before does not sign in."""
    key = _make_key()
    assert _add_key(client, key)
    assert _submit_password(client).startswith(AUTHENTICATE)
    assert not _is_signed_in(client)
    credential = key.get(_options(client, AUTHENTICATE, "request_options"))
    assert _submit_credential(client, AUTHENTICATE, credential)
    _submit_password(client)
    assert not _submit_credential(client, AUTHENTICATE, credential)
    _options(client, AUTHENTICATE, "request_options")
    assert not _submit_credential(client, AUTHENTICATE, credential)
    credential = key.get(_options(client, AUTHENTICATE, "request_options"))
    assert _submit_credential(client, AUTHENTICATE, credential)


def test_passkey_signs_in_without_a_password(client: Client, user: User) -> None:
    """An answer that was sent before does not sign in."""
    key = _make_key(is_passkey=True)
    assert _add_key(client, key)
    client.post("/accounts/logout/")
    credential = key.get(_passkey_options(client))
    assert _submit_credential(client, LOGIN_BY_PASSKEY, credential)
    client.post("/accounts/logout/")
    _passkey_options(client)
    assert not _submit_credential(client, LOGIN_BY_PASSKEY, credential)


def _change_origin(key: SecurityKey) -> None:
    key.origin = "https://testserver.example.net"


def _leave_tls(key: SecurityKey) -> None:
    key.origin = "http://testserver"


def _change_relying_party(key: SecurityKey) -> None:
    key.relying_party = "console.example.net"


_FORGERIES = pytest.mark.parametrize("forge", [_change_origin, _leave_tls, _change_relying_party])


@_FORGERIES
def test_answer_made_for_another_site_does_not_sign_in(
    client: Client, user: User, forge: Callable[[SecurityKey], None]
) -> None:
    """A phishing site passes on the challenge; the browser signs the name of that site."""
    key = _make_key(is_passkey=True)
    assert _add_key(client, key)
    forge(key)
    client.post("/accounts/logout/")
    assert not _submit_credential(client, LOGIN_BY_PASSKEY, key.get(_passkey_options(client)))
    _submit_password(client)
    credential = key.get(_options(client, AUTHENTICATE, "request_options"))
    assert not _submit_credential(client, AUTHENTICATE, credential)


@_FORGERIES
def test_key_made_for_another_site_is_not_added(
    client: Client, user: User, forge: Callable[[SecurityKey], None]
) -> None:
    key = _make_key()
    forge(key)
    assert not _add_key(client, key)


def test_key_of_somebody_else_does_not_sign_in(client: Client, user: User) -> None:
    """Same credential id, another private key."""
    key, other_key = _make_key(), _make_key()
    assert _add_key(client, key)
    other_key._credential_id = key._credential_id
    _submit_password(client)
    credential = other_key.get(_options(client, AUTHENTICATE, "request_options"))
    assert not _submit_credential(client, AUTHENTICATE, credential)
