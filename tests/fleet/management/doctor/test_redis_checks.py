from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis

from fleet.management.doctor import redis_checks
from fleet.management.doctor.findings import CheckFinding, CheckVerdict
from fleet.management.doctor.redis_checks import RedisFacts, read_or_describe
from fleet.processes import valkey


@pytest.fixture(scope="module")
def own_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[valkey.Valkey]:
    """A server whose configuration tests change."""
    server = valkey.start(Path(tmp_path_factory.mktemp("valkey")))
    yield server
    server.stop()


def _findings_of(url: str) -> dict[str, CheckFinding]:
    facts = read_or_describe(url, time.time)
    assert isinstance(facts, RedisFacts), facts
    return {finding.name: finding for finding in redis_checks.check_redis(facts, url)}


def test_embedded_valkey_is_healthy(own_valkey: valkey.Valkey) -> None:
    """The report does not have its password."""
    findings = _findings_of(own_valkey.url)

    assert {finding.verdict for finding in findings.values()} == {CheckVerdict.OK}
    assert "(AOF)" in findings["redis-persistence"].summary
    assert urlsplit(own_valkey.url).password not in str(findings)


def test_eviction_of_a_real_server(own_valkey: valkey.Valkey) -> None:
    """Without a memory limit it is a warning, with a limit an error."""
    with Redis.from_url(own_valkey.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        assert _findings_of(own_valkey.url)["redis-eviction"].verdict is CheckVerdict.WARNING
        client.config_set("maxmemory", "1gb")
        finding = _findings_of(own_valkey.url)["redis-eviction"]
        client.config_set("maxmemory", "0")
        client.config_set("maxmemory-policy", "noeviction")
    assert finding.verdict is CheckVerdict.ERROR
    assert "allkeys-lru" in finding.summary
    assert "maxmemory-policy noeviction" in finding.remedy


@pytest.mark.parametrize(
    ("user_info", "phrase"), [("", "requires a password"), (":wrong@", "rejects the password")]
)
def test_password_of_a_real_server(own_valkey: valkey.Valkey, user_info: str, phrase: str) -> None:
    """Both cases have the form of the URL with a password."""
    finding = read_or_describe(f"redis://{user_info}{own_valkey.address}/0", time.time)

    assert isinstance(finding, CheckFinding)
    assert phrase in finding.summary
    assert "wrong" not in finding.summary
    assert "REDIS_URL=redis://:PASSWORD@HOST" in finding.remedy


def test_server_that_does_not_run() -> None:
    finding = read_or_describe("redis://:sesame@127.0.0.1:1/0", time.time)

    assert isinstance(finding, CheckFinding)
    assert "does not respond" in finding.summary
    assert "sesame" not in finding.summary


def test_invalid_url() -> None:
    finding = read_or_describe("http://127.0.0.1:1/", time.time)

    assert isinstance(finding, CheckFinding)
    assert "is not a valid URL" in finding.summary


def test_clock_of_the_server_is_read(own_valkey: valkey.Valkey) -> None:
    """The clock of this machine is injected: five minutes ahead."""
    facts = read_or_describe(own_valkey.url, lambda: time.time() + 300)

    assert isinstance(facts, RedisFacts)
    assert facts.started_at <= facts.ended_at
    assert facts.ended_at - facts.server_at == pytest.approx(300, abs=30)


@pytest.mark.parametrize(
    ("fields", "verdict", "phrase"),
    [
        ({"redis_version": "7.2.4", "valkey_version": "9.1.0"}, CheckVerdict.OK, "Valkey 9.1.0"),
        ({"redis_version": "6.2.14"}, CheckVerdict.OK, "Redis 6.2.14"),
        ({"redis_version": "6.0.16"}, CheckVerdict.ERROR, "Redis 6.0.16 is too old"),
        ({"redis_version": "5.0.7"}, CheckVerdict.ERROR, "requires Redis 6.2 or newer"),
    ],
)
def test_versions(fields: dict[str, Any], verdict: CheckVerdict, phrase: str) -> None:
    finding = redis_checks.check_version(fields)

    assert (finding.verdict, phrase in finding.summary) == (verdict, True)


@pytest.mark.parametrize(
    ("fields", "phrase"),
    [
        ({"role": "slave"}, "is a replica"),
        ({"role": "master", "loading": 1}, "is loading"),
        ({"role": "master", "rdb_last_bgsave_status": "err"}, "rdb_last_bgsave_status"),
        ({"role": "master", "aof_last_write_status": "err"}, "aof_last_write_status"),
    ],
)
def test_refused_writes(fields: dict[str, Any], phrase: str) -> None:
    finding = redis_checks.check_writes(fields)

    assert (finding.verdict, phrase in finding.summary) == (CheckVerdict.ERROR, True)


@pytest.mark.parametrize(
    ("limit", "used_bytes", "verdict"),
    [(0, 900, CheckVerdict.OK), (1000, 899, CheckVerdict.OK), (1000, 900, CheckVerdict.ERROR)],
)
def test_memory(limit: int, used_bytes: int, verdict: CheckVerdict) -> None:
    finding = redis_checks.check_memory({"maxmemory": limit, "used_memory": used_bytes})

    assert finding.verdict is verdict


def test_persistence_is_not_required() -> None:
    finding = redis_checks.check_persistence({"aof_enabled": 0})

    assert finding.verdict is CheckVerdict.OK
    assert "None is required" in finding.summary
