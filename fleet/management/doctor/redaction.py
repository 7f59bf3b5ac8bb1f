"""Redaction of secrets in texts that leave this machine. Pure.

Known secrets are removed wherever they occur; other secrets are found by their form or by the name beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

#: What replaces a secret.
PLACEHOLDER = "[redacted]"
#: Ends of the names of variables with secrets; `_FILE` variables have paths.
_SECRET_ENDS = ("KEY", "KEYS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASS", "TOKEN", "CREDENTIALS")
#: Settings that are secret URLs as a whole.
_SECRET_URL_NAMES = frozenset({"REFLOAT_DEADMAN_URL"})
#: Settings with paths, whose names end like those of secrets.
_PATH_NAMES = frozenset({"REFLOAT_TLS_KEY"})
#: Shorter texts occur by chance in other words.
_MIN_SECRET_LENGTH = 4
#: Longer parts of a secret URL are no words of its receiver's API.
_MAX_WORD_LENGTH = 10
_SENSITIVE_WORD = (
    r"(?:pass(?:word|wd|phrase)?|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|secret[_-]?key|routing[_-]?key|"
    r"integration[_-]?key|signature|sig|credentials?|authorization|cookie|session(?:id|_key)?|csrftoken|otp)"
)

#: The end alone, too: the beginning may be before the first line.
_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\A(?:(?!-----BEGIN ).)*?-----END [A-Z ]*PRIVATE KEY-----",
    re.DOTALL,
)
# Lengths are limited, because a pattern without limits takes quadratic time on long words.
_SCHEME = r"(?<![a-z0-9+.-])(?P<scheme>[a-z][a-z0-9+.-]{0,30})://"
_USER_INFO = re.compile(_SCHEME + r"[^\s'\"<>]{0,2000}@", re.IGNORECASE)
#: Query strings and fragments: signed addresses have their signature there.
_QUERY = re.compile(_SCHEME + r"(?P<address>[^\s?#'\"<>]{1,2000})[?#][^\s'\"<>]+", re.IGNORECASE)
_ADDRESS = re.compile(_SCHEME + r"(?P<host>[^\s/?#'\"<>]{0,2000})(?P<path>[^\s?#'\"<>]*)", re.IGNORECASE)
#: Schemes whose host is an address. The URLs of other schemes are those of receivers, which begin with a token.
_ADDRESS_SCHEMES = frozenset(
    {
        *("http", "https", "ws", "wss", "redis", "rediss", "unix", "postgres", "postgresql", "sqlite"),
        *("file", "grpc", "grpcs", "dns", "ipv4", "ipv6", "tcp", "tls", "smtp"),
    }
)
#: Part of a path that a person did not choose: the paths of webhooks and ping addresses are secret.
_RANDOM_PART = re.compile(
    r"(?=[^/]{0,200}\d|[^/]{0,200}[a-z][^/]{0,200}[A-Z])[\w.~%:=+-]{8,}|[\w.~%:=+-]{20,}"
)
_BEARER = re.compile(r"\b(?P<scheme>Bearer|Basic|Token|Digest)\s+[\w.~+/=:-]{6,}", re.IGNORECASE)
_API_TOKEN = re.compile(r"\brfl_[\w-]+")
_ASSIGNMENT = re.compile(
    rf"(?P<name>{_SENSITIVE_WORD}[\w.-]{{0,40}}['\"]?\s{{0,9}}(?:=>|[:=])\s{{0,9}})"
    r"(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&)\]}]+)",
    re.IGNORECASE,
)
#: Tokens of common receivers, by their prefixes.
_PREFIXED_TOKEN = re.compile(r"\b(?:xox[a-z]-|xapp-|gh[a-z]_|glpat-|sk-|AKIA|eyJ)[\w.=-]{8,}")


class Redactor:
    """Removes secrets from texts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets`: known values, which are removed in plain and in URL-encoded form."""
        values = {value.strip() for value in secrets if len(value.strip()) >= _MIN_SECRET_LENGTH}
        forms = {
            form
            for value in values
            for form in (value, quote(value, safe=""), quote_plus(value), repr(value)[1:-1])
        }
        # Long values first: one may contain another.
        pattern = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
        self._known_secrets = re.compile(pattern) if pattern else None

    def redact(self, text: str) -> str:
        """Return a text without secrets."""
        if self._known_secrets is not None:
            text = self._known_secrets.sub(PLACEHOLDER, text)
        text = _PRIVATE_KEY.sub(PLACEHOLDER, text)
        text = _USER_INFO.sub(rf"\g<scheme>://{PLACEHOLDER}@", text)
        text = _QUERY.sub(rf"\g<scheme>://\g<address>?{PLACEHOLDER}", text)
        text = _ADDRESS.sub(_redact_address, text)
        text = _BEARER.sub(rf"\g<scheme> {PLACEHOLDER}", text)
        text = _API_TOKEN.sub(PLACEHOLDER, text)
        text = _PREFIXED_TOKEN.sub(PLACEHOLDER, text)
        return _ASSIGNMENT.sub(_redact_value, text)

    def redact_document(self, document: Any) -> Any:
        """Return a JSON document whose strings have no secrets."""
        if isinstance(document, str):
            return self.redact(document)
        if isinstance(document, Mapping):
            return {name: self.redact_document(value) for name, value in document.items()}
        if isinstance(document, list | tuple):
            return [self.redact_document(value) for value in document]
        return document

    def redact_environment(
        self, environment: Mapping[str, str], known_names: Iterable[str]
    ) -> dict[str, str]:
        """Return the settings among the environment variables. Values of unknown names are not shown."""
        documented_names = frozenset(known_names)
        return {
            name: self.redact(value) if name in documented_names and not is_secret_name(name) else PLACEHOLDER
            for name, value in sorted(environment.items())
            if name in documented_names or name.startswith("REFLOAT_")
        }


def is_secret_name(name: str) -> bool:
    """Return whether the value of an environment variable is a secret as a whole."""
    if name in _PATH_NAMES:
        return False
    return name in _SECRET_URL_NAMES or name.upper().endswith(_SECRET_ENDS)


def secrets_in_url(url: str, *, is_secret: bool = False) -> list[str]:
    """Return the password of a URL, as written and decoded; with `is_secret` also its path and query, and their parts.

    Empty for a text that is no URL.
    """
    try:
        parts = urlsplit(url)
        password = parts.password or ""
    except ValueError:
        return []
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    tails = [path, parts.path, parts.query] if is_secret and parts.scheme else []
    # The parts of receivers' webhooks: short ones, such as `services`, are words.
    tails += [part for part in re.split(r"[/?&=]", path) if tails and len(part) > _MAX_WORD_LENGTH]
    if is_secret and parts.scheme and parts.scheme not in _ADDRESS_SCHEMES:
        tails.append(parts.netloc)
    return [value for value in (password, unquote(password), *tails) if len(value) >= _MIN_SECRET_LENGTH]


def _redact_address(match: re.Match[str]) -> str:
    if match["scheme"].lower() not in _ADDRESS_SCHEMES:
        return f"{match['scheme']}://{PLACEHOLDER}"
    return f"{match['scheme']}://{match['host']}{_RANDOM_PART.sub(PLACEHOLDER, match['path'])}"


def _redact_value(match: re.Match[str]) -> str:
    value = match["value"]
    quote_mark = value[0] if value[0] in "\"'" else ""
    return f"{match['name']}{quote_mark}{PLACEHOLDER}{quote_mark}"


def mask_password(url: str) -> str:
    """Return `url` with its password masked."""
    parts = urlsplit(url)
    return url.replace(f":{parts.password}@", ":…@") if parts.password else url
