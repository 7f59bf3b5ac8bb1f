"""Checks before the console starts: settings, port, Redis, database. Each failure is one line."""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from django.core import checks
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.exceptions import InconsistentMigrationHistory

from fleet.management.backups.home_lock import HomeInUseError, lock_console, lock_home
from fleet.management.backups.migration_state import list_unapplied_migrations, list_unknown_migrations
from fleet.management.doctor import clock_checks, redis_checks, tls_checks
from fleet.management.doctor.findings import CheckFinding, CheckVerdict
from fleet.models.clusters import ensure_default_cluster
from fleet.processes import valkey
from fleet.transport.tls import TLSFiles


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


@contextlib.contextmanager
def claim_console(home: Path) -> Iterator[None]:
    """Be the only console of this home folder within the block. Raises PrepareError if another one runs.

    Two would share a Redis and plan each round twice.
    """
    try:
        with lock_console(home):
            yield
    except HomeInUseError as error:
        raise PrepareError(_describe_other_console(home)) from error


def _describe_other_console(home: Path) -> str:
    return f"another console runs with REFLOAT_HOME={home}: stop that console, or set REFLOAT_HOME to another folder"


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


def check_redis(url: str) -> None:
    """Raise PrepareError unless the Redis at `url` answers, and is new enough."""
    facts = redis_checks.read_or_describe(url, time.time)
    finding = facts if isinstance(facts, CheckFinding) else redis_checks.check_version(facts.server_fields)
    if finding.verdict is CheckVerdict.ERROR:
        raise PrepareError(finding.sentence)


def find_start_warnings(redis_url: str, tls: TLSFiles, clock: Callable[[], float]) -> list[CheckFinding]:
    """Return what the doctor finds wrong with Redis, clocks and certificates, and does not prevent a start.

    `clock`: of this machine, seconds since the epoch.
    """
    findings = list(tls_checks.check_tls(tls, datetime.fromtimestamp(clock(), UTC)))
    facts = redis_checks.read_or_describe(redis_url, clock)
    if isinstance(facts, CheckFinding):
        findings.append(facts)
    else:
        findings += redis_checks.check_redis(facts, redis_url)
        findings.append(
            clock_checks.check_clock(
                "redis-clock", "Redis", facts.server_at, facts.started_at, facts.ended_at
            )
        )
    return [finding for finding in findings if finding.verdict in (CheckVerdict.WARNING, CheckVerdict.ERROR)]


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
            raise PrepareError(_describe_other_console(home)) from error
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
