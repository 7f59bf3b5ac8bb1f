"""`refloat doctor` as a person runs it: planted faults are found and named, with what to do, and no secret leaves."""

from __future__ import annotations

import json
import shutil
import sqlite3
import stat
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from fleet.monitoring.state.writer import Writer
from fleet.processes import valkey
from fleet.transport import certificate_authority
from fleet.vocabulary.verdicts import State
from tests.fakes import record
from tests.flow.installation import Installation
from tests.flow.postgres import postgresql
from tests.meta.house import ROOT

_SECRET = "s3same-0pen"


@pytest.fixture(scope="module")
def prepared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that `refloat prepare` made."""
    home = Path(tmp_path_factory.mktemp("prepared")) / "home"
    process = Installation(home).run("prepare")
    assert process.returncode == 0, process.stderr
    return home


@pytest.fixture
def installation(tmp_path: Path, prepared_home: Path) -> Installation:
    """A prepared installation of the test's own."""
    shutil.copytree(prepared_home, tmp_path / "home")
    return Installation(tmp_path / "home")


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[valkey.Valkey]:
    """A Redis with a password, on the installation's own port."""
    server = valkey.start(tmp_path / "redis", persist=False)
    yield server
    server.stop()


def _summaries(findings: list[dict[str, Any]]) -> str:
    return " ".join(finding["summary"] for finding in findings)


def test_faults_of_settings_and_files(installation: Installation, own_valkey: valkey.Valkey) -> None:
    """Eleven at once: each is found although the others are there."""
    home = installation.home
    home.chmod(0o755)
    (home / "secret_key").chmod(0o644)
    (home / "refloat.sqlite3").write_bytes(b"no database at all " * 100)
    past = datetime.now(UTC) - timedelta(days=800)
    authority = certificate_authority.ensure_authority(home.parent / "tls", now=past)
    pair = certificate_authority.issue(authority, "console", role="console", now=past)
    other_pair = certificate_authority.issue(authority, "other", role="console", now=past)
    installation.environment = {
        "REFLOAT_HTTPS": "maybe",
        "REFLOAT_SHARD_SIZE": "many",
        "REFLOAT_ALOWED_HOSTS": "console.example.com",
        "REFLOAT_ROUND_DEADLINE": "60",
        "REFLOAT_PUBLIC_URL": "https://console.example.com/",
        "REDIS_URL": f"redis://{own_valkey.address}/0",
        "REFLOAT_TLS_CA": str(pair.ca),
        "REFLOAT_TLS_CERT": str(pair.certificate),
        "REFLOAT_TLS_KEY": str(other_pair.key),
    }

    findings = installation.find()

    assert {"REFLOAT_HTTPS='maybe'", "REFLOAT_SHARD_SIZE='many'"} == {
        finding["summary"].split()[0] for finding in findings["setting-values"]
    }
    assert "Rename it to REFLOAT_ALLOWED_HOSTS" in findings["setting-names"][0]["remedy"]
    assert "REFLOAT_ROUND_DEADLINE (60 s)" in _summaries(findings["setting-combinations"])
    assert "console.example.com" in findings["allowed-hosts"][0]["summary"]
    assert {f"Run `chmod 700 {home}`.", f"Run `chmod 600 {home / 'secret_key'}`."} <= {
        finding["remedy"] for finding in findings["file-modes"]
    }
    assert "restore the database from the backup" in findings["database-integrity"][0]["remedy"]
    assert "requires a password" in findings["redis-connection"][0]["summary"]
    assert "key values mismatch" in findings["tls-files"][0]["summary"]
    assert _summaries(findings["tls-expiry"]).count("expired on") == 2


def test_faults_of_a_running_console(installation: Installation, own_valkey: valkey.Valkey) -> None:
    """Redis, processes, database and channels are there, but wrong."""
    installation.environment = {"REDIS_URL": own_valkey.url, "REFLOAT_SECRET_KEY": "the-first-key"}
    installation.execute(
        "from fleet.models.alerting import AlertClock, Channel, Delivery\n"
        "from fleet.models.clusters import Cluster\n"
        "from fleet.models.sealed_secrets import seal\n"
        "Cluster.objects.update(auths=['127.0.0.1:1'])\n"
        "AlertClock.objects.create(cluster_id='default', evaluated_at=1.7e9)\n"
        "channel = Channel.objects.create(name='ops', kind='webhook', secrets=seal({'token': 'x'}),"
        " rate_limited_until=4e9)\n"
        "Delivery.objects.create(channel=channel, key='k', kind='firing', payload={}, created_at=1.7e9,"
        " next_attempt_at=4e9, attempted_at=1.7e9, last_error='status 403')\n"
    )
    installation.environment["REFLOAT_SECRET_KEY"] = "another-key"
    with sqlite3.connect(installation.home / "refloat.sqlite3") as connection:
        connection.execute(
            "INSERT INTO django_migrations (app, name, applied) VALUES ('fleet', '9999_future', '2026-01-01')"
        )
        connection.execute("DELETE FROM django_migrations WHERE app = 'fleet' AND name LIKE '0040%'")
    connection.close()
    with Redis.from_url(own_valkey.url) as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        client.config_set("maxmemory", "1gb")
        client.rpush("refloat:celery:actions", *["{}"] * 20)
        record.fill(Writer(client, "refloat"), [State.HEALTHY])

    findings = installation.find()

    assert "fleet.9999_future" in findings["database-newer"][0]["summary"]
    assert "refloat prepare" in findings["database-migrations"][0]["remedy"]
    assert "allkeys-lru" in findings["redis-eviction"][0]["summary"]
    assert "was last polled" in findings["polling-rounds"][0]["summary"]
    assert "20 tasks wait" in findings["worker-actions"][0]["summary"]
    assert "No worker of the queue polls" in findings["worker-polls"][0]["summary"]
    assert "alerting process is not running" in findings["alerting"][0]["summary"]
    assert "status 403" in findings["channel-deliveries"][0]["summary"]
    assert "secret key" in findings["channel-secrets"][0]["summary"]
    assert "ops (webhook)" in findings["channel-rate-limits"][0]["summary"]
    assert "REFLOAT_PUBLIC_URL" in findings["public-url"][0]["remedy"]


def test_installation_that_was_never_prepared(tmp_path: Path) -> None:
    """Redis is down, too. Nothing is created."""
    installation = Installation(tmp_path / "home", {"REDIS_URL": f"redis://:{_SECRET}@127.0.0.1:1/0"})

    process = installation.run("doctor")

    assert process.returncode == 1, process
    assert "error    home-folder: " in process.stdout
    assert "Run `refloat prepare`." in process.stdout
    assert "does not respond" in process.stdout
    assert process.stdout.splitlines()[-1] == "3 errors, 0 warnings"
    assert _SECRET not in process.stdout + process.stderr
    assert "Traceback" not in process.stderr
    assert not installation.home.exists()


def test_driver_of_the_database_is_missing(installation: Installation) -> None:
    """As after an installation without the extra `postgres`."""
    folder = installation.home.parent / "packages"
    folder.mkdir()
    for name in ("psycopg", "psycopg2"):
        (folder / f"{name}.py").write_text("raise ImportError('absent')\n")
    installation.environment = {
        "PYTHONPATH": f"{folder}:{ROOT}",
        "DATABASE_URL": "postgres://ada@127.0.0.1:1/refloat",
    }

    (finding,) = installation.find()["setting-values"]

    assert "its driver is not installed" in finding["summary"]
    assert "refloat[postgres]" in finding["summary"]


@pytest.mark.slow
def test_postgresql(tmp_path: Path) -> None:
    """Prepared, and after it was stopped."""
    with postgresql() as url:
        installation = Installation(tmp_path / "home", {"DATABASE_URL": url})
        assert installation.run("prepare").returncode == 0
        process = installation.run("doctor")
        assert "ok       database-migrations" in process.stdout
        assert (
            "ok       database-clock: The clocks of this machine and of the database agree." in process.stdout
        )

    (finding,) = installation.find()["database-connection"]
    assert "Start the database" in finding["remedy"]


def test_bundle_has_no_secrets(installation: Installation, own_valkey: valkey.Valkey) -> None:
    """They are planted in settings, channels, errors and logs; none is in the bundle."""
    home, path = installation.home, installation.home.parent / "bundle.zip"
    password = own_valkey.password_file.read_text().strip()
    key = (home / "secret_key").read_text().strip()
    planted_secrets = [password, key, *(f"{_SECRET}-{number}" for number in range(1, 12))]
    planted = dict(enumerate(planted_secrets[2:], start=1))
    (home / "oidc").write_text(planted[1])
    installation.environment = {
        "REDIS_URL": own_valkey.url,
        "REFLOAT_OIDC_CLIENT_SECRET_FILE": str(home / "oidc"),
        "REFLOAT_EMAIL_PASSWORD": planted[2],
        "REFLOAT_DEADMAN_URL": f"https://hc.example.com/{planted[3]}",
        "REFLOAT_EMAIL_PASWORD": planted[4],
        "AWS_SECRET_ACCESS_KEY": planted[5],
    }
    installation.execute(
        "from fleet.models.alerting import Channel, Delivery\n"
        "from fleet.models.sealed_secrets import seal\n"
        f"channel = Channel.objects.create(name='ops', kind='slack', secrets=seal({{'url': 'https://h/{planted[6]}'}}))\n"
        "Delivery.objects.create(channel=channel, key='k', kind='firing', payload={}, created_at=1.7e9,"
        f" next_attempt_at=4e9, attempted_at=1.7e9, last_error='POST /{planted[6]} gave 403, token={planted[7]}')\n"
    )
    (home / "log").mkdir(mode=0o700)
    (home / "log" / "web.log").write_text(
        "\n".join(
            [
                f"connected with {password}, {key} and {planted[1]}",
                f"postgres://ada:{planted[8]}@db.example.com/refloat refused",
                f"GET https://s3.example.com/backup?X-Amz-Signature={planted[9]}",
                f"Authorization: Bearer {planted[10]}",
                "-----BEGIN PRIVATE KEY-----",
                planted[11],
                "-----END PRIVATE KEY-----",
                f"{planted[2]} {planted[3]} {planted[4]} {planted[5]} {planted[6]}",
                "WARNING proxy-1 (10.0.0.7:3024) does not respond",
            ]
        )
    )

    installation.find("--bundle", str(path))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert [secret for secret in planted_secrets if secret in str(files)] == []
    assert "WARNING proxy-1 (10.0.0.7:3024) does not respond" in files["log/web.log"]
    assert json.loads(files["settings.json"])["REDIS_URL"].endswith(f"@{own_valkey.address}/0")
    assert json.loads(files["findings.json"])["versions"]["refloat"]
    assert "redis_version" in json.loads(files["redis.json"])
    assert "findings.json" in files["README.txt"]
