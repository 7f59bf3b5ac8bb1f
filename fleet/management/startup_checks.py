"""Checks before the console starts: settings, port, Redis, database. Each failure is one line."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import redis
from django.core import checks
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.exceptions import InconsistentMigrationHistory

from fleet.management.backups.home_lock import HomeInUseError, lock_home
from fleet.management.backups.migration_state import list_unapplied_migrations, list_unknown_migrations
from fleet.models.clusters import ensure_default_cluster
from fleet.processes import valkey

#: Seconds until the Redis of REDIS_URL must answer.
_REDIS_TIMEOUT = 3.0


class PrepareError(Exception):
    """A reason why the console cannot start; the message says how to fix it."""


def check_settings() -> None:
    """Raise PrepareError with all problems that Django's system checks find in the settings."""
    errors = [message for message in run_setting_checks() if message.is_serious()]
    if errors:
        raise PrepareError(
            "; ".join(f"{message.msg}{f' ({message.hint})' if message.hint else ''}" for message in errors)
        )


def run_setting_checks() -> list[checks.CheckMessage]:
    """Return the errors and warnings of Django's system checks of the settings."""
    # Checks of URLs test the code, not the settings, and import every page, which takes a second.
    settings_checks = (
        check for check in checks.registry.registry.get_checks() if checks.Tags.urls not in check.tags
    )
    return [message for check in settings_checks for message in check(app_configs=None, databases=None)]


@contextlib.contextmanager
def share_home(home: Path) -> Iterator[None]:
    """Keep `refloat restore` from this home folder within the block. Raises PrepareError while a restore runs."""
    try:
        with lock_home(home, is_exclusive=False):
            yield
    except HomeInUseError as error:
        raise PrepareError(
            f"`refloat restore` runs with REFLOAT_HOME={home}: start the console when it has ended"
        ) from error


def check_port(host: str, port: int) -> None:
    """Raise PrepareError if it is not possible to listen on `host:port`."""
    if not 0 < port < 65536:  # getaddrinfo takes it modulo 65536
        raise PrepareError(f"invalid port --port {port}: use 1 to 65535")
    try:
        address_infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = address_infos[0]
        with socket.socket(family, kind, protocol) as probe:
            # As uvicorn does: connections of the last run in TIME_WAIT do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise PrepareError(
            f"cannot listen on {host}:{port} ({error.strerror}): {_listen_hint_of(error)}"
        ) from error


def _listen_hint_of(error: OSError) -> str:
    """Return what to change after an error of listening on --host and --port."""
    if error.errno == errno.EADDRINUSE:
        return "use another --port, or stop the program that uses this port"
    if error.errno == errno.EACCES:
        return "use another --port, because this user may not use this port"
    return "use a --host that is a name or an address of this machine"


def mask_password(url: str) -> str:
    """Return `url` with its password masked."""
    parts = urlsplit(url)
    return url.replace(f":{parts.password}@", ":…@") if parts.password else url


def check_redis(url: str) -> None:
    """Raise PrepareError unless the Redis at `url` answers."""
    masked_url = mask_password(url)
    try:
        client = redis.Redis.from_url(
            url, socket_timeout=_REDIS_TIMEOUT, socket_connect_timeout=_REDIS_TIMEOUT, retry=None
        )
        with contextlib.closing(client):
            client.ping()
    except ValueError as error:
        raise PrepareError(f"REDIS_URL={masked_url} is not a valid URL: {error}") from error
    except redis.RedisError as error:
        raise PrepareError(
            f"REDIS_URL={masked_url} does not answer ({error}): start it, or unset REDIS_URL to use the embedded Valkey"
        ) from error


class RunningRedis:
    """The Redis of REDIS_URL, or an embedded Valkey that runs as long as this process.

    Raises PrepareError if Redis does not answer or Valkey does not start.
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
        except valkey.FolderInUseError as error:
            raise PrepareError(
                f"another console runs with REFLOAT_HOME={home}: stop that console, or set REFLOAT_HOME to another "
                "folder"
            ) from error
        except valkey.ValkeyError as error:
            raise PrepareError(str(error)) from error
        self.url = self._valkey.url

    def restart_if_dead(self) -> str | None:
        """Restart an embedded Valkey that died, on the same port. Return a message for the operator, or None."""
        if self._valkey is None or self._valkey.process.poll() is None:
            return None
        try:
            self._valkey = valkey.start(self._data_folder, port=urlsplit(self.url).port)
        except valkey.ValkeyError as error:
            return f"Valkey ended and cannot be restarted: {error}"
        return "Valkey ended and was restarted with its data"

    def stop(self) -> None:
        """Stop the embedded Valkey. The Redis of REDIS_URL keeps running."""
        if self._valkey is not None:
            self._valkey.stop()


def prepare_database(auths: Sequence[str] = ()) -> None:
    """Migrate the database and create the cluster `default`, with the addresses `auths`, if it does not exist.

    Raises PrepareError if the database cannot be reached or changed, or a newer version of Refloat prepared it.
    """
    _create_private_sqlite()
    name = connection.settings_dict.get("NAME")
    try:
        _check_newer_migrations(str(name))
        _migrate(str(name))
        ensure_default_cluster(auths)
    except DatabaseError as error:
        raise PrepareError(f"the database {name} cannot be used: {_on_one_line(error)}") from error


def _check_newer_migrations(name: str) -> None:
    """Raise PrepareError if the database has migrations that this program does not have."""
    unknown_migrations = list_unknown_migrations()
    if unknown_migrations:
        raise PrepareError(
            f"the database {name} is newer than this program, which does not have {unknown_migrations[0]}: install the "
            "version of Refloat that prepared the database, or restore the backup from before the upgrade"
        )


def _migrate(name: str) -> None:
    """Apply the migrations that the database lacks. Raises PrepareError and DatabaseError."""
    try:
        call_command("migrate", verbosity=0, interactive=False)
    except InconsistentMigrationHistory as error:
        raise PrepareError(
            f"the migrations of the database {name} have a gap ({_on_one_line(error)}): restore the backup from before "
            "the upgrade"
        ) from error
    except DatabaseError as error:
        unapplied_migrations = list_unapplied_migrations()
        if not unapplied_migrations:
            raise
        raise PrepareError(
            f"the database {name} cannot be migrated: {unapplied_migrations[0]} failed ({_on_one_line(error)}), and "
            "the migrations before it are applied. Free space, or correct the access rights, and run `refloat prepare` "
            "again; if that fails, restore the backup from before the upgrade"
        ) from error


def _on_one_line(error: Exception) -> str:
    return " ".join(str(error).split())  # messages of PostgreSQL have two lines


def _create_private_sqlite() -> None:
    """Create a new SQLite file with mode 0600, because it holds sessions and password hashes.

    SQLite gives its log and index files the same mode.
    """
    name = str(connection.settings_dict.get("NAME"))
    if connection.vendor != "sqlite" or name.startswith("file:") or name == ":memory:":
        return
    # If the file cannot be created, opening the database reports the error.
    with contextlib.suppress(OSError):
        Path(name).touch(mode=0o600, exist_ok=False)
