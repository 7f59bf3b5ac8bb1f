"""Django system checks of settings that are readable but wrong, each with an id and a hint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core import checks

_TLS_FILES = ("REFLOAT_TLS_CA", "REFLOAT_TLS_CERT", "REFLOAT_TLS_KEY")
_REDIS_SCHEMES = {"redis", "rediss", "unix"}
_ADDRESS_HINTS = {
    "REFLOAT_AUTHS": "Separate addresses with commas: auth-1.example:3025,auth-2.example:3025",
    "REFLOAT_GATEWAY": "Use one address, such as gateway.example:3025",
}


@checks.register(checks.Tags.security)
def check_tls_files(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[checks.CheckMessage]:
    """Check that the certificates and keys for the fleet are readable and come in pairs."""
    return list(_tls_file_errors())


def _tls_file_errors() -> Iterator[checks.CheckMessage]:
    for name in _TLS_FILES:
        path = getattr(settings, name)
        if not path:
            continue
        hint = "Set it to a PEM file that this user may read, or unset it."
        try:
            if b"-----BEGIN " not in Path(path).read_bytes():
                yield checks.Error(f"{name}={path} is not a PEM file.", hint=hint, id="fleet.E001")
        except OSError as error:
            yield checks.Error(f"{name}={path} cannot be read: {error.strerror}.", hint=hint, id="fleet.E001")
    if bool(settings.REFLOAT_TLS_CERT) != bool(settings.REFLOAT_TLS_KEY):
        yield checks.Error(
            "Only one of REFLOAT_TLS_CERT and REFLOAT_TLS_KEY is set.",
            hint="Set both for mutual TLS, or neither.",
            id="fleet.E002",
        )
    if settings.REFLOAT_TLS_CERT and not settings.REFLOAT_TLS_CA:
        yield checks.Error(
            "REFLOAT_TLS_CERT is set without REFLOAT_TLS_CA: polling would use no TLS.",
            hint="Set REFLOAT_TLS_CA to the CA certificate of the fleet.",
            id="fleet.E003",
        )


@checks.register()
def check_external_services(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[checks.CheckMessage]:
    """Check URLs and ports of external services."""
    errors: list[checks.CheckMessage] = [
        checks.Error(f"{name} is not a URL.", hint="Use http://host/ or https://host/.", id="fleet.E008")
        for name in ("REFLOAT_PUBLIC_URL", "REFLOAT_DEADMAN_URL")
        if not _is_optional_http_url(getattr(settings, name))
    ]
    if not 0 < settings.EMAIL_PORT < 65536:
        errors.append(
            checks.Error(
                f"REFLOAT_EMAIL_PORT={settings.EMAIL_PORT} is not a port.",
                hint="Use a port from 1 to 65535, for example 587.",
                id="fleet.E009",
            )
        )
    return errors


def _is_optional_http_url(url: str) -> bool:
    """Return whether `url` is empty or an HTTP URL."""
    try:
        parts = urlsplit(url)
        return not url or (parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0)
    except ValueError:
        return False


@checks.register()
def check_rounds(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[checks.CheckMessage]:
    """Check that a round ends before the next one starts, and that a shard has instances."""
    errors: list[checks.CheckMessage] = []
    interval, deadline = settings.REFLOAT_ROUND_INTERVAL, settings.REFLOAT_ROUND_DEADLINE
    if deadline >= interval:
        errors.append(
            checks.Error(
                f"REFLOAT_ROUND_DEADLINE ({deadline:g} s) is not shorter than REFLOAT_ROUND_INTERVAL ({interval:g} s).",
                hint="Polls of the fleet would overlap: shorten the deadline or lengthen the interval.",
                id="fleet.E004",
            )
        )
    if settings.REFLOAT_SHARD_SIZE < 1:
        errors.append(
            checks.Error(
                "REFLOAT_SHARD_SIZE=0 would poll no instance.",
                hint="Use at least 1, for example 250.",
                id="fleet.E005",
            ),
        )
    return errors


@checks.register()
def check_fleet_addresses(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[checks.CheckMessage]:
    """Check the addresses of Redis, the gateway and the first auths."""
    errors: list[checks.CheckMessage] = []
    redis_url = str(settings.REDIS_URL)
    scheme = urlsplit(redis_url).scheme if "://" in redis_url else ""
    if scheme not in _REDIS_SCHEMES:
        problem = f"has the scheme {scheme}://, which is not for Redis" if scheme else "has no scheme"
        errors.append(
            checks.Error(
                f"REDIS_URL {problem}.",
                hint="Use redis://host:6379/0, rediss://… with TLS, or unset it for the embedded Valkey.",
                id="fleet.E006",
            )
        )
    for name, address in [
        *(("REFLOAT_AUTHS", address) for address in settings.REFLOAT_AUTHS),
        *(("REFLOAT_GATEWAY", address) for address in [settings.REFLOAT_GATEWAY] if address),
    ]:
        host, _colon, port = address.rpartition(":")
        if not host or "://" in address or not port.isdigit() or not 0 < int(port) < 65536:
            errors.append(
                checks.Error(
                    f"{name} has the address {address!r}, which is not host:port.",
                    hint=_ADDRESS_HINTS[name],
                    id="fleet.E007",
                )
            )
    return errors
