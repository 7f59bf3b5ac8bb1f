"""What is wrong before a start is said in one sentence that tells how to mend it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from django.db import connection
from django.db.utils import OperationalError
from pytest_django import Settings

from fleet.management import startup_checks
from fleet.management.startup_checks import PrepareError, RunningRedis
from fleet.models.clusters import Cluster
from fleet.processes import valkey
from tests.fakes.waiting import eventually_sync


def test_settings_that_are_right_pass() -> None:
    """A fresh clone starts."""
    startup_checks.check_settings()


def test_wrong_settings_become_one_line_with_hints(settings: Settings) -> None:
    """Everything wrong is told at once, on one line."""
    settings.REFLOAT_TLS_CA = "nowhere.pem"
    settings.REFLOAT_SHARD_SIZE = 0

    with pytest.raises(PrepareError) as refused:
        startup_checks.check_settings()

    said = str(refused.value)
    assert "nowhere.pem cannot be read" in said
    assert "would poll no instance. (Use at least 1, for example 250.)" in said
    assert "\n" not in said


def test_port_in_use_is_said() -> None:
    """The address, the reason, and two ways out."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(
            PrepareError, match=rf"cannot listen on 127.0.0.1:{port} \(Address already in use\): .*--port"
        ):
            startup_checks.check_port("127.0.0.1", port)


def test_free_port_passes() -> None:
    """Nothing is left listening."""
    port = valkey.free_port()

    startup_checks.check_port("127.0.0.1", port)
    startup_checks.check_port("127.0.0.1", port)


@pytest.mark.parametrize("port", [70000, -1])
def test_number_that_is_no_port(port: int) -> None:
    """Out of range is its own sentence."""
    with pytest.raises(PrepareError, match="invalid port"):
        startup_checks.check_port("127.0.0.1", port)


def test_host_that_is_not_ours() -> None:
    """An address of another machine cannot be listened on."""
    with pytest.raises(PrepareError, match=r"cannot listen on 192\.0\.2\.1:"):
        startup_checks.check_port("192.0.2.1", valkey.free_port())


def test_redis_that_is_down_is_said_without_its_password() -> None:
    """The URL as given, but for the password, and what to do."""
    port = valkey.free_port()

    with pytest.raises(PrepareError) as refused:
        startup_checks.check_redis(f"redis://:hunter2@127.0.0.1:{port}/0")

    said = str(refused.value)
    assert f"REDIS_URL=redis://:…@127.0.0.1:{port}/0 does not answer" in said
    assert "unset REDIS_URL" in said
    assert "hunter2" not in said


def test_url_that_is_none(tmp_path: Path) -> None:
    """A wrong scheme is told from a server that is down."""
    with pytest.raises(PrepareError, match="is not a valid URL"):
        startup_checks.check_redis("memcached://x")


def test_given_redis_is_used_and_left_running(valkey_url: str, tmp_path: Path) -> None:
    """Nothing of ours is started beside it, and it is not ours to end."""
    given = RunningRedis(valkey_url, tmp_path)

    assert given.url == valkey_url
    assert given.restart_if_dead() is None
    given.stop()
    assert redis.Redis.from_url(valkey_url).ping() is True
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[RunningRedis]:
    """An embedded Valkey in a home of its own."""
    running = RunningRedis(None, tmp_path)
    yield running
    running.stop()


def test_embedded_valkey_runs_until_it_is_stopped(embedded: RunningRedis, tmp_path: Path) -> None:
    """Without a URL one is started in our home, alone there, and ended."""
    assert redis.Redis.from_url(embedded.url).ping() is True
    with pytest.raises(PrepareError, match="another Refloat uses"):
        RunningRedis(None, tmp_path)

    embedded.stop()

    assert valkey.running_url(tmp_path / "valkey") is None


def said_of(embedded: RunningRedis) -> str:
    """What it says once its Valkey has ended, which its threads do one after the other."""
    said: list[str] = []

    def noticed() -> bool:
        said.extend(filter(None, [embedded.restart_if_dead()]))
        return bool(said)

    eventually_sync(noticed)
    return said[0]


def test_embedded_valkey_that_died_runs_again(embedded: RunningRedis, tmp_path: Path) -> None:
    """At the same address, with its data: nobody needs to be told a new one."""
    client = redis.Redis.from_url(embedded.url)
    client.set("kept", "yes")
    pid = client.info("server")["process_id"]
    # Written to disk once a second: a clean end writes the rest.
    os.kill(pid, signal.SIGTERM)

    assert said_of(embedded) == "Valkey ended and was restarted with its data"
    assert embedded.restart_if_dead() is None
    assert redis.Redis.from_url(embedded.url).get("kept") == b"yes"


def test_embedded_valkey_that_cannot_run_again_is_said(
    embedded: RunningRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console goes on and says so, again and again."""
    pid = redis.Redis.from_url(embedded.url).info("server")["process_id"]
    os.kill(pid, signal.SIGTERM)

    def refuse(*_: object, **__: object) -> valkey.Valkey:
        raise valkey.ValkeyError("no room")

    monkeypatch.setattr(valkey, "start", refuse)

    assert said_of(embedded) == "Valkey ended and cannot be restarted: no room"
    assert embedded.restart_if_dead() == "Valkey ended and cannot be restarted: no room"


@pytest.mark.django_db
def test_database_gets_its_default_cluster(settings: Settings) -> None:
    """Every start migrates, mostly in vain, and knows the auths that the settings name."""
    settings.REFLOAT_AUTHS = ["auth-1.example:3025"]

    startup_checks.prepare_database()
    startup_checks.prepare_database()

    assert Cluster.objects.get().auths == ["auth-1.example:3025"]


def test_database_that_cannot_be_used_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's own words, one line."""

    def refuse(*_: object, **__: object) -> None:
        raise OperationalError("unable to open database file\n")

    monkeypatch.setattr(startup_checks, "call_command", refuse)

    with pytest.raises(PrepareError, match=r"cannot be used: unable to open database file$"):
        startup_checks.prepare_database()


def test_new_database_is_readable_by_us_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions are in it; one that is there keeps the mode somebody gave it."""
    path = tmp_path / "new.sqlite3"
    monkeypatch.setitem(connection.settings_dict, "NAME", path)
    monkeypatch.setattr(startup_checks, "call_command", lambda *_, **__: None)
    monkeypatch.setattr(startup_checks, "ensure_default_cluster", lambda _: None)
    startup_checks.prepare_database()
    assert path.stat().st_mode & 0o777 == 0o600

    path.chmod(0o640)
    startup_checks.prepare_database()
    assert path.stat().st_mode & 0o777 == 0o640
