from __future__ import annotations

import pytest

from fleet.management.doctor.redaction import PLACEHOLDER, Redactor, is_secret_name, secrets_in_url

_SECRET = "s3same-0pen"


@pytest.mark.parametrize(
    "text",
    [
        f"redis://:{_SECRET}@127.0.0.1:9999/0",
        f"postgres://ada:p@{_SECRET}@db.example.com/refloat",
        f"https://hooks.example.com/services/{_SECRET}/B00",
        f"https://bucket.example.com/x?X-Amz-Signature={_SECRET}&y=1",
        f"https://example.com/#token={_SECRET}",
        f"slack://{_SECRET}/b/c",
        f"Authorization: Bearer {_SECRET}",
        f"Authorization: Basic {_SECRET}",
        f'{{"routing_key": "{_SECRET}"}}',
        f"{{'password': '{_SECRET}'}}",
        f"api_key={_SECRET}&x=1",
        f"REFLOAT_EMAIL_PASSWORD={_SECRET}",
        f"sessionid={_SECRET}; path=/",
        f"token => {_SECRET}",
        f"rfl_{_SECRET}",
        f"xoxb-{_SECRET}",
        f"-----BEGIN EC PRIVATE KEY-----\n{_SECRET}\n-----END EC PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{_SECRET}\n",
        f"{_SECRET}\n-----END PRIVATE KEY-----\nnext",
    ],
)
def test_secrets_are_recognized_by_their_form(text: str) -> None:
    """Nobody told the redactor what they are."""
    redacted_text = Redactor().redact(f"line before\n{text}\n" if "END" not in text[:40] else text)

    assert _SECRET not in redacted_text
    assert PLACEHOLDER in redacted_text


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-01T10:00:00.000Z WARNING fleet.tasks: proxy-1 (10.0.0.7:3024) does not respond",
        "https://console.example.com/agents/",
        "redis://127.0.0.1:9999/0",
        "GET /api/v1/fleet/summary 200",
        "All secrets can be read.",
    ],
)
def test_other_texts_stay(text: str) -> None:
    """Names and addresses are what helpers need."""
    assert Redactor([_SECRET]).redact(text) == text


def test_known_secrets_are_removed_in_every_form() -> None:
    """Also as a part of a unit, and URL-encoded."""
    redactor = Redactor(["a b/c'd", "long-secret-1", "long-secret", "x"])

    text = redactor.redact("prefix-a b/c'd-suffix a%20b%2Fc%27d a+b%2Fc%27d long-secret-1 x")

    assert text == f"prefix-{PLACEHOLDER}-suffix {PLACEHOLDER} {PLACEHOLDER} {PLACEHOLDER} x"


def test_document_stays_valid() -> None:
    """Keys and numbers stay."""
    document = {"a": [{"summary": 'the token: "x y"'}, 7, None], "b": f"password={_SECRET}"}

    assert Redactor().redact_document(document) == {
        "a": [{"summary": f'the token: "{PLACEHOLDER}"'}, 7, None],
        "b": f"password={PLACEHOLDER}",
    }


def test_environment_has_settings_only() -> None:
    """Values of secrets, and of names that Refloat does not know, are not shown."""
    environment = {
        "REFLOAT_SECRET_KEY": _SECRET,
        "REFLOAT_SECRET_KEY_FILE": "/etc/refloat/key",
        "REFLOAT_OIDC_CLIENT_SECRET": _SECRET,
        "REFLOAT_DEADMAN_URL": "https://example.com/ping",
        "REFLOAT_TLS_KEY": "/etc/refloat/tls.key",
        "REFLOAT_HTTPS": "true",
        "REFLOAT_SECRT": _SECRET,
        "DATABASE_URL": f"postgres://ada:{_SECRET}@db/refloat",
        "AWS_SECRET_ACCESS_KEY": _SECRET,
    }
    known_names = set(environment) - {"REFLOAT_SECRT", "AWS_SECRET_ACCESS_KEY"}

    shown_environment = Redactor().redact_environment(environment, known_names)

    assert shown_environment == {
        "DATABASE_URL": f"postgres://{PLACEHOLDER}@db/refloat",
        "REFLOAT_DEADMAN_URL": PLACEHOLDER,
        "REFLOAT_HTTPS": "true",
        "REFLOAT_OIDC_CLIENT_SECRET": PLACEHOLDER,
        "REFLOAT_SECRET_KEY": PLACEHOLDER,
        "REFLOAT_SECRET_KEY_FILE": "/etc/refloat/key",
        "REFLOAT_SECRT": PLACEHOLDER,
        "REFLOAT_TLS_KEY": "/etc/refloat/tls.key",
    }


def test_secret_names() -> None:
    assert is_secret_name("REFLOAT_EMAIL_PASSWORD")
    assert not is_secret_name("REFLOAT_EMAIL_PASSWORD_FILE")


def test_secrets_of_a_url() -> None:
    """The password in both forms; the path of a webhook if the whole URL is secret."""
    assert secrets_in_url("redis://:p%40ss@h/0") == ["p%40ss", "p@ss"]
    assert secrets_in_url("https://h/a/bcd?e=fgh", is_secret=True) == ["/a/bcd?e=fgh", "/a/bcd", "e=fgh"]
    assert "T0123456789" in secrets_in_url("https://h/services/T0123456789", is_secret=True)
    assert "services" not in secrets_in_url("https://h/services/T0123456789", is_secret=True)
    assert "TokenA" in secrets_in_url("slack://TokenA/b/c", is_secret=True)
    assert secrets_in_url("no URL") == []
    assert secrets_in_url("http://[") == []


@pytest.mark.parametrize("unit", ["a.", "a://", "token", "/a1", "a=", "://a@"])
def test_long_words_take_bounded_time(unit: str) -> None:
    """A name in a log can be as long as its sender likes. Quadratic time would exceed the timeout of the test."""
    text = unit * (60_000 // len(unit))

    assert _SECRET not in Redactor([_SECRET]).redact(f"{text} {_SECRET}")
