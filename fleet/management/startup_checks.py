"""What must be right before the console starts: settings, port, Redis, database. Each failure is one sentence."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import redis
from django.core import checks
from django.core.management import call_command
from django.db import DatabaseError, connection

from fleet.models.clusters import ensure_default_cluster
from fleet.processes import valkey

#: How long a Redis given by URL may take to answer, seconds.
_REDIS_TIMEOUT = 3.0


class PrepareError(Exception):
    """Why the console cannot start; the sentence says how to mend it."""


def check_settings() -> None:
    """Raise PrepareError with everything that Django's system checks find wrong with the settings."""
    # Those about URLs judge our code, not the settings, and import every page: a second before anything starts.
    settings_checks = (check for check in checks.registry.registry.get_checks() if checks.Tags.urls not in check.tags)
    errors = [
        message for check in settings_checks for message in check(app_configs=None, databases=None) if message.is_serious()
    ]
    if errors:
        raise PrepareError(
            "; ".join(f"{message.msg}{f' ({message.hint})' if message.hint else ''}" for message in errors)
        )


def check_port(host: str, port: int) -> None:
    """Raise PrepareError when nobody can listen on `host:port` now."""
    if not 0 < port < 65536:  # getaddrinfo takes it modulo 65536
        raise PrepareError(f"--port {port} is no port: use 1 to 65535")
    try:
        address_infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = address_infos[0]
        with socket.socket(family, kind, protocol) as probe:
            # As uvicorn will: a connection that lingers from the last run is no obstacle.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise PrepareError(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another with --port, or end what uses it"
        ) from error


def without_password(url: str) -> str:
    """`url` fit for a terminal."""
    parts = urlsplit(url)
    return url.replace(f":{parts.password}@", ":…@") if parts.password else url


def check_redis(url: str) -> None:
    """Raise PrepareError unless the Redis at `url` answers."""
    safe_url = without_password(url)
    try:
        client = redis.Redis.from_url(
            url, socket_timeout=_REDIS_TIMEOUT, socket_connect_timeout=_REDIS_TIMEOUT, retry=None
        )
        with contextlib.closing(client):
            client.ping()
    except ValueError as error:
        raise PrepareError(f"REDIS_URL={safe_url} cannot be read: {error}") from error
    except redis.RedisError as error:
        raise PrepareError(
            f"REDIS_URL={safe_url} does not answer ({error}): start it, or unset REDIS_URL to use the embedded Valkey"
        ) from error


class RunningRedis:
    """The Redis to use: the one given, after it answered, or an embedded Valkey for as long as we run.

    Raises PrepareError when there is none to be had.
    """

    def __init__(self, redis_url: str | None, home: Path) -> None:
        self._data_folder = home / "valkey"
        self._valkey: valkey.Valkey | None = None
        if redis_url:
            check_redis(redis_url)
            self.url = redis_url
            return
        try:
            self._valkey = valkey.start(self._data_folder)
        except valkey.ValkeyError as error:
            raise PrepareError(str(error)) from error
        self.url = self._valkey.url

    def restart_if_dead(self) -> str | None:
        """Start an embedded Valkey that died again, where everybody looks for it; say what was done, if anything."""
        if self._valkey is None or self._valkey.process.poll() is None:
            return None
        try:
            self._valkey = valkey.start(self._data_folder, port=urlsplit(self.url).port)
        except valkey.ValkeyError as error:
            return f"Valkey died and does not start again: {error}"
        return "Valkey died and runs again, with its data"

    def stop(self) -> None:
        """End an embedded Valkey; one that was given is not ours to end."""
        if self._valkey is not None:
            self._valkey.stop()


def prepare_database(auths: Sequence[str] = ()) -> None:
    """Bring the database up to date, and the cluster `default` into it, with `auths` to begin with.

    Raises PrepareError when it cannot be reached or changed.
    """
    _create_private_sqlite()
    try:
        call_command("migrate", verbosity=0, interactive=False)
        ensure_default_cluster(auths)
    except DatabaseError as error:
        name = connection.settings_dict.get("NAME")
        details = " ".join(str(error).split())  # PostgreSQL's own are two lines
        raise PrepareError(f"the database {name} cannot be used: {details}") from error


def _create_private_sqlite() -> None:
    """Make a new SQLite file one that nobody else may read: sessions and passwords' hashes are in it.

    Its neighbours, the log and the index of it, take its mode.
    """
    name = str(connection.settings_dict.get("NAME"))
    if connection.vendor != "sqlite" or name.startswith("file:") or name == ":memory:":
        return
    # One that cannot be made is told of by whoever opens it.
    with contextlib.suppress(OSError):
        Path(name).touch(mode=0o600, exist_ok=False)
