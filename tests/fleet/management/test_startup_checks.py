"""Problems that stop a start are reported in one sentence with a remedy."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import redis
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.db.utils import OperationalError
from pytest_django import Settings

from fleet.management import startup_checks
from fleet.management.backups.home_lock import lock_home
from fleet.management.startup_checks import PrepareError, RunningRedis
from fleet.models.clusters import Cluster
from fleet.processes import valkey
from fleet.transport import certificate_authority
from fleet.transport.tls import TLSFiles
from tests.fakes.waiting import eventually_sync


def test_default_settings_are_valid() -> None:
    """A fresh clone starts."""
    startup_checks.check_settings()


def test_all_invalid_settings_are_reported_in_one_line(settings: Settings) -> None:
    """The line has hints."""
    settings.REFLOAT_TLS_CA = "nowhere.pem"
    settings.REFLOAT_SHARD_SIZE = 0

    with pytest.raises(PrepareError) as caught:
        startup_checks.check_settings()

    message = str(caught.value)
    assert "nowhere.pem cannot be read" in message
    assert "would poll no instance. (Use at least 1, for example 250.)" in message
    assert "\n" not in message


def test_port_in_use_is_reported() -> None:
    """The error has the address, the reason and two remedies."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        with pytest.raises(
            PrepareError, match=rf"cannot listen on 127.0.0.1:{port} \(Address already in use\): .*--port"
        ):
            startup_checks.check_port("127.0.0.1", port)


def test_check_of_a_free_port_leaves_it_free() -> None:
    """The check can be repeated."""
    port = valkey.find_free_port()

    startup_checks.check_port("127.0.0.1", port)
    startup_checks.check_port("127.0.0.1", port)


@pytest.mark.parametrize("port", [70000, -1])
def test_port_out_of_range_is_refused(port: int) -> None:
    """The error says "invalid port"."""
    with pytest.raises(PrepareError, match="invalid port"):
        startup_checks.check_port("127.0.0.1", port)


def test_address_of_another_machine_is_refused() -> None:
    """The console cannot listen on it."""
    with pytest.raises(PrepareError, match=r"cannot listen on 192\.0\.2\.1:.*: use a --host"):
        startup_checks.check_port("192.0.2.1", valkey.find_free_port())


def test_unknown_host_is_refused_with_the_flag() -> None:
    """Neither another port nor stopping a program would help."""
    with pytest.raises(
        PrepareError, match=r"cannot listen on 1\.2\.3\.4\.5:8000 \(.*\): use a --host"
    ) as caught:
        startup_checks.check_port("1.2.3.4.5", 8000)
    assert "--port" not in str(caught.value)


def test_unreachable_redis_is_reported_without_its_password() -> None:
    """The error has the URL without the password, and a remedy."""
    port = valkey.find_free_port()

    with pytest.raises(PrepareError) as caught:
        startup_checks.check_redis(f"redis://:hunter2@127.0.0.1:{port}/0")

    message = str(caught.value)
    assert f"Redis at redis://:…@127.0.0.1:{port}/0 does not respond" in message
    assert "Unset it to use the embedded Valkey" in message
    assert "\n" not in message
    assert "hunter2" not in message


def test_invalid_redis_url_is_reported(tmp_path: Path) -> None:
    """A wrong scheme has another error than a server that is down."""
    with pytest.raises(PrepareError, match="is not a valid URL"):
        startup_checks.check_redis("memcached://x")


def test_redis_that_requires_a_password_is_reported(valkey_url: str) -> None:
    """The line says so, and where the password goes."""
    url = f"redis://{valkey_url.rpartition('@')[2]}"

    with pytest.raises(PrepareError, match=r"requires a password\. Set REDIS_URL=redis://:PASSWORD@"):
        startup_checks.check_redis(url)


def test_start_warns_of_what_it_can_run_with(valkey_url: str, tmp_path: Path) -> None:
    """A Redis that evicts, a clock that is off, and an expired certificate."""
    now = time.time() + 300
    authority = certificate_authority.ensure_authority(
        tmp_path, now=datetime.fromtimestamp(now, UTC) - timedelta(days=400)
    )
    with redis.Redis.from_url(valkey_url) as client:
        previous = client.config_get("maxmemory-policy")["maxmemory-policy"]
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            warnings = startup_checks.find_start_warnings(
                valkey_url, TLSFiles(authority=authority.ca), lambda: now
            )
        finally:
            client.config_set("maxmemory-policy", previous)

    sentence_of = {finding.name: finding.sentence for finding in warnings}
    assert set(sentence_of) == {"tls-expiry", "redis-eviction", "redis-clock"}
    assert "expired" in sentence_of["tls-expiry"]
    assert "maxmemory-policy noeviction" in sentence_of["redis-eviction"]
    assert "NTP" in sentence_of["redis-clock"]


def test_start_without_problems_warns_of_nothing(valkey_url: str) -> None:
    """An embedded Valkey and no TLS."""
    assert startup_checks.find_start_warnings(valkey_url, TLSFiles(), time.time) == []


def test_second_console_of_a_home_is_refused(tmp_path: Path) -> None:
    """Also with a Redis of its own, for which no Valkey folder is in use."""
    with (
        startup_checks.claim_console(tmp_path),
        pytest.raises(PrepareError, match="another console runs with REFLOAT_HOME="),
        startup_checks.claim_console(tmp_path),
    ):
        pytest.fail("two consoles run")
    with startup_checks.claim_console(tmp_path):
        pass


def test_configured_redis_is_used_and_left_running(valkey_url: str, tmp_path: Path) -> None:
    """No Valkey is started beside it, and `stop` does not end it."""
    configured_redis = RunningRedis(valkey_url, tmp_path)

    assert configured_redis.url == valkey_url
    assert configured_redis.restart_if_dead() is None
    configured_redis.stop()
    assert redis.Redis.from_url(valkey_url).ping() is True
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def embedded_valkey(tmp_path: Path) -> Iterator[RunningRedis]:
    """Yield an embedded Valkey in its own home."""
    running_redis = RunningRedis(None, tmp_path)
    yield running_redis
    running_redis.stop()


def test_embedded_valkey_runs_until_it_is_stopped(embedded_valkey: RunningRedis, tmp_path: Path) -> None:
    """Without a URL a Valkey is started in the home folder, and a second one is refused."""
    assert redis.Redis.from_url(embedded_valkey.url).ping() is True
    with pytest.raises(PrepareError, match=f"another console runs with REFLOAT_HOME={tmp_path}: stop that"):
        RunningRedis(None, tmp_path)

    embedded_valkey.stop()

    assert valkey.running_url(tmp_path / "valkey") is None


def wait_for_restart_line(embedded_valkey: RunningRedis) -> str:
    """Return the line that is written after the Valkey has ended, whose threads end one after the other."""
    lines: list[str] = []

    def has_line() -> bool:
        lines.extend(filter(None, [embedded_valkey.restart_if_dead()]))
        return bool(lines)

    eventually_sync(has_line)
    return lines[0]


def test_embedded_valkey_is_restarted_with_its_data(embedded_valkey: RunningRedis, tmp_path: Path) -> None:
    """The address stays the same."""
    client = redis.Redis.from_url(embedded_valkey.url)
    client.set("kept", "yes")
    pid = client.info("server")["process_id"]
    # Valkey writes to disk once a second; an orderly end writes the rest.
    os.kill(pid, signal.SIGTERM)

    assert wait_for_restart_line(embedded_valkey) == "Valkey ended and was restarted with its data"
    assert embedded_valkey.restart_if_dead() is None
    assert redis.Redis.from_url(embedded_valkey.url).get("kept") == b"yes"


def test_failed_restart_of_embedded_valkey_is_reported(
    embedded_valkey: RunningRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console keeps running and repeats the report."""
    pid = redis.Redis.from_url(embedded_valkey.url).info("server")["process_id"]
    os.kill(pid, signal.SIGTERM)

    def refuse(*_: object, **__: object) -> valkey.Valkey:
        raise valkey.ValkeyError("no room")

    monkeypatch.setattr(valkey, "start", refuse)

    assert wait_for_restart_line(embedded_valkey) == "Valkey ended and cannot be restarted: no room"
    assert embedded_valkey.restart_if_dead() == "Valkey ended and cannot be restarted: no room"


@pytest.mark.django_db
def test_database_is_prepared_with_the_default_cluster(settings: Settings) -> None:
    """The preparation can be repeated; the cluster has the auths of the settings."""
    settings.REFLOAT_AUTHS = ["auth-1.example:3025"]

    startup_checks.prepare_database()
    startup_checks.prepare_database()

    assert Cluster.objects.get().auths == ["auth-1.example:3025"]


@pytest.mark.django_db
def test_unusable_database_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the driver's message in one line."""

    def refuse(*_: object, **__: object) -> None:
        raise OperationalError("unable to open database file\n")

    monkeypatch.setattr(startup_checks, "call_command", refuse)

    with pytest.raises(PrepareError, match=r"cannot be used: unable to open database file$"):
        startup_checks.prepare_database()


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.django_db
def test_database_of_a_newer_version_is_reported() -> None:
    """Nothing is migrated."""
    _execute(
        "INSERT INTO django_migrations (app, name, applied) VALUES ('fleet', '9999_future', '2026-01-01')"
    )

    with pytest.raises(
        PrepareError, match=r"newer than this program, which does not have fleet\.9999_future: install"
    ):
        startup_checks.prepare_database()


@pytest.mark.django_db
def test_gap_in_the_migrations_is_reported() -> None:
    """As after a restore of single tables."""
    _execute("DELETE FROM django_migrations WHERE app = 'fleet' AND name LIKE '0039%'")

    with pytest.raises(
        PrepareError, match=r"have a gap \(Migration fleet\.\S+ is applied before .* restore the backup"
    ):
        startup_checks.prepare_database()


@pytest.mark.django_db(transaction=True)
def test_migration_that_fails_is_reported() -> None:
    """Its table is there, but it is not recorded: half of it was done."""
    _execute("DELETE FROM django_migrations WHERE app = 'sessions'")
    try:
        with pytest.raises(PrepareError) as caught:
            startup_checks.prepare_database()
    finally:
        MigrationRecorder(connection).record_applied("sessions", "0001_initial")

    assert "sessions.0001_initial failed (" in str(caught.value)
    assert "\n" not in str(caught.value)
    startup_checks.prepare_database()


@pytest.mark.django_db
def test_new_database_is_readable_by_its_owner_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database contains sessions; an existing database keeps its mode."""
    path = tmp_path / "new.sqlite3"
    monkeypatch.setitem(connection.settings_dict, "NAME", path)
    monkeypatch.setattr(startup_checks, "call_command", lambda *_, **__: None)
    monkeypatch.setattr(startup_checks, "ensure_default_cluster", lambda _: None)
    startup_checks.prepare_database()
    assert path.stat().st_mode & 0o777 == 0o600

    path.chmod(0o640)
    startup_checks.prepare_database()
    assert path.stat().st_mode & 0o777 == 0o640


def test_console_does_not_start_during_a_restore(tmp_path: Path) -> None:
    """Several programs may share the folder."""
    with startup_checks.share_home(tmp_path), startup_checks.share_home(tmp_path):
        pass
    with (
        lock_home(tmp_path, is_exclusive=True),
        pytest.raises(PrepareError, match=r"`refloat restore` runs with REFLOAT_HOME="),
        startup_checks.share_home(tmp_path),
    ):
        raise AssertionError("the console starts")
