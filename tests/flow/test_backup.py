"""`refloat backup` and `refloat restore` as a person runs them: complete, consistent, and errors lose nothing."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import stat
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest

from fleet.management.backups.home_lock import lock_home
from tests.flow.installation import Installation
from tests.flow.postgres import postgresql
from tests.flow.producers import Database, produced

pytestmark = pytest.mark.timeout(900)

_SECRET = "s3same-0pen"
_CREATE_ROWS = (
    "from django.contrib.auth.models import User\n"
    "from django.contrib.sessions.models import Session\n"
    "from django.utils import timezone\n"
    "from fleet.audit import Attempt, write_entry\n"
    "from fleet.models.alerting import Channel\n"
    "from fleet.models.history import AgentChange\n"
    "from fleet.models.inventory import Agent\n"
    "from fleet.models.sealed_secrets import seal\n"
    "from fleet.vocabulary.changes import SYSTEM_ACTOR\n"
    "User.objects.create_user('ada', password='x')\n"
    "Session.objects.create(session_key='k' * 32, session_data='', expire_date=timezone.now())\n"
    f"Channel.objects.create(name='ops', kind='webhook', secrets=seal({{'token': '{_SECRET}'}}))\n"
    "agent = Agent.objects.create(cluster_id='default', agent_id='a', name='agent, \"a\"\\n', position=0)\n"
    "AgentChange(agent_id=agent.pk, at=1.7e9, cause=0, old=0, new=3, reason=4, recovery=2).save()\n"
    "AgentChange(agent_id=agent.pk, at=1.70001e9, cause=0, old=3, new=0, reason=4, recovery=2).save()\n"
    "write_entry(Attempt(SYSTEM_ACTOR, 'x.done', 'default', 's'), 'succeeded', timezone.now())\n"
)
_CHECK_ROWS = (
    "import json, sys\n"
    "from django.contrib.auth.models import User\n"
    "from fleet.models.alerting import Channel\n"
    "from fleet.models.changes import AuditEntry\n"
    "from fleet.models.history import AgentChange\n"
    "from fleet.models.inventory import Agent\n"
    "from fleet.models.sealed_secrets import unseal\n"
    "from django.db import DatabaseError, transaction\n"
    "assert User.objects.get().check_password('x')\n"
    "assert User.objects.create_user('bob').pk > User.objects.get(username='ada').pk\n"
    "assert Agent.objects.get().name == 'agent, \"a\"\\n'\n"
    "assert [*AgentChange.objects.order_by('at').values_list('at', flat=True)] == [1.7e9, 1.70001e9]\n"
    "try:\n"
    "    with transaction.atomic():\n"
    "        AuditEntry.objects.all().delete()\n"
    "except Exception:\n"
    "    pass\n"
    "else:\n"
    "    raise AssertionError('the audit log can be changed')\n"
)
_READ_SECRET = f"assert unseal(Channel.objects.get().secrets) == {{'token': '{_SECRET}'}}\n"


@pytest.fixture(scope="module")
def filled_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a user, a session, a channel with a secret, an agent with history, and an audit entry."""
    home = Path(tmp_path_factory.mktemp("filled")) / "home"
    installation = Installation(home)
    assert installation.run("prepare").returncode == 0
    installation.execute(_CREATE_ROWS)
    return home


@pytest.fixture
def installation(tmp_path: Path, filled_home: Path) -> Installation:
    """A filled installation of the test's own."""
    shutil.copytree(filled_home, tmp_path / "home")
    return Installation(tmp_path / "home")


@pytest.fixture(scope="module")
def archive(filled_home: Path) -> Path:
    """An archive of the filled home, without secrets."""
    path = filled_home.parent / "archive.tar.gz"
    process = Installation(filled_home).run("backup", "--to", str(path))
    assert process.returncode == 0, process.stderr
    return path


def _fail(process: subprocess.CompletedProcess[str]) -> str:
    """Return the one line of an error."""
    assert process.returncode == 2, process
    (line,) = process.stderr.splitlines()
    assert line.startswith("refloat: ")
    assert process.stdout == ""
    return line


def _hash_files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith((".lock", "-wal", "-shm"))
    }


def _rebuild(archive: Path, target: Path, *, leave_out: str = "", **fields: object) -> Path:
    """Write a copy of an archive with other fields in its manifest, or without a member."""
    with tarfile.open(archive) as source, tarfile.open(target, "w:gz") as copy:
        for member in source:
            content = source.extractfile(member)
            assert content is not None
            data = content.read()
            if member.name == "manifest.json":
                data = json.dumps({**json.loads(data), **fields}).encode()
                member.size = len(data)
            if member.name != leave_out:
                copy.addfile(member, BytesIO(data))
    return target


def test_archive_without_secrets(archive: Path, tmp_path: Path) -> None:
    """Only its owner can read it; no secret and no session is in it, and the restore names what is missing."""
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as contents:
        # Python 3.11.2 of Debian 12 has no filters.
        if hasattr(tarfile, "data_filter"):
            contents.extraction_filter = tarfile.data_filter
        contents.extractall(tmp_path)
    assert not (tmp_path / "secret_key").exists()
    database = (tmp_path / "database/refloat.sqlite3").read_bytes()
    assert b"k" * 32 not in database
    assert _SECRET.encode() not in database

    restored = Installation(tmp_path / "other")
    process = restored.run("restore", str(archive), "--json")

    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert report["channels_without_secrets"] == ["ops"]
    assert not report["is_key_restored"]
    assert not report["previous"]
    restored.execute(_CHECK_ROWS)


@pytest.mark.slow
def test_archive_with_secrets(installation: Installation, tmp_path: Path) -> None:
    """With the key, channels send at once; the previous key and database are kept."""
    path = tmp_path / "with.tar.gz"
    installation.environment["REFLOAT_PUBLIC_URL"] = "https://console.example.com/"
    assert installation.run("backup", "--to", str(path), "--with-secrets").returncode == 0
    new_installation = Installation(tmp_path / "other")
    assert new_installation.run("prepare").returncode == 0
    previous_key = (new_installation.home / "secret_key").read_text()

    process = new_installation.run("restore", str(path), "--force", "--json")

    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert report["is_key_restored"]
    assert report["channels_without_secrets"] == []
    assert report["different_settings"] == ["REFLOAT_PUBLIC_URL"]
    assert (Path(report["previous"]) / "secret_key").read_text() == previous_key
    assert (Path(report["previous"]) / "refloat.sqlite3").stat().st_size > 0
    assert (new_installation.home / "secret_key").read_text() == (
        installation.home / "secret_key"
    ).read_text()
    new_installation.execute(_CHECK_ROWS + _READ_SECRET)
    produced(Database(installation.home), actions=("backup.create",))
    produced(Database(new_installation.home), actions=("backup.restore",))
    assert not [path for path in new_installation.home.iterdir() if path.name.startswith(".")]


def test_restore_into_a_new_home(installation: Installation, tmp_path: Path) -> None:
    """Nothing was there before, so nothing is kept: a command that only asked for users began no installation."""
    path = tmp_path / "with.tar.gz"
    assert installation.run("backup", "--to", str(path), "--with-secrets").returncode == 0
    new_installation = Installation(tmp_path / "new")
    assert new_installation.run("user", "list").returncode == 2

    process = new_installation.run("restore", str(path), "--json")

    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert (report["previous"], report["is_key_restored"]) == ("", True)
    new_installation.execute(_CHECK_ROWS + _READ_SECRET)


@pytest.mark.slow
def test_backup_is_consistent_while_rows_are_written(installation: Installation, tmp_path: Path) -> None:
    """Each transaction of the writer adds a pair; the archive has no half of one."""
    has_written, is_over = threading.Event(), threading.Event()

    def write_pairs() -> None:
        with closing(sqlite3.connect(installation.home / "refloat.sqlite3", timeout=20)) as database:
            for number in range(1_000_000):
                with database:
                    for side in ("left", "right"):
                        database.execute(
                            "INSERT INTO auth_group (name) VALUES (?)", (f"{side}-{number} {'x' * 50}",)
                        )
                has_written.set()
                if is_over.is_set():
                    return

    writer = threading.Thread(target=write_pairs)
    writer.start()
    try:
        assert has_written.wait(20)
        process = installation.run("backup", "--to", str(tmp_path / "a.tar.gz"))
    finally:
        is_over.set()
        writer.join()
    assert process.returncode == 0, process.stderr
    restored = Installation(tmp_path / "other")
    assert restored.run("restore", str(tmp_path / "a.tar.gz")).returncode == 0
    with closing(sqlite3.connect(restored.home / "refloat.sqlite3")) as database:
        counts = [
            database.execute("SELECT count(*) FROM auth_group WHERE name LIKE ?", (f"{side}-%",)).fetchone()[
                0
            ]
            for side in ("left", "right")
        ]
    assert counts[0] == counts[1] > 0


@pytest.mark.slow
def test_archives_that_are_refused(installation: Installation, archive: Path, tmp_path: Path) -> None:
    """Damaged, incomplete, of another database, of a newer version: one line each, and nothing has changed."""
    damaged = bytearray(archive.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    (tmp_path / "damaged.tar.gz").write_bytes(damaged)
    (tmp_path / "cut.tar.gz").write_bytes(archive.read_bytes()[:-4000])
    (tmp_path / "text.tar.gz").write_text("no archive")
    manifest = json.loads(tarfile.open(archive).extractfile("manifest.json").read())  # type: ignore[union-attr] # noqa: SIM115
    rows = {**manifest["rows"], "auth_user": 2}
    migrations = [*manifest["migrations"], "fleet.9999_future"]
    cases = {
        tmp_path / "missing.tar.gz": "No such file",
        tmp_path / "damaged.tar.gz": "damaged",
        tmp_path / "cut.tar.gz": "damaged",
        tmp_path / "text.tar.gz": "not an archive",
        _rebuild(archive, tmp_path / "1.tar.gz", leave_out="settings.json"): "it lacks settings.json",
        _rebuild(archive, tmp_path / "2.tar.gz", database="postgresql"): "a database of postgresql",
        _rebuild(archive, tmp_path / "3.tar.gz", migrations=migrations): "fleet.9999_future",
        _rebuild(archive, tmp_path / "4.tar.gz", format=2): "format 2",
        _rebuild(archive, tmp_path / "5.tar.gz", rows=rows): "auth_user has 1 rows instead of 2",
    }
    before = _hash_files(installation.home)

    for path, phrase in cases.items():
        assert phrase in _fail(installation.run("restore", str(path), "--force"))

    assert _hash_files(installation.home) == before
    assert "--force" in _fail(installation.run("restore", str(archive)))
    with lock_home(installation.home, is_exclusive=False):
        assert "stop it first" in _fail(installation.run("restore", str(archive), "--force"))
    assert _hash_files(installation.home) == before


@pytest.mark.slow
def test_full_disk_and_missing_folder(installation: Installation, archive: Path, tmp_path: Path) -> None:
    """A file may grow to 200 KiB: neither command leaves a half-written file behind."""
    small = Installation(installation.home, max_file_bytes=200 * 1024)
    before = _hash_files(installation.home)
    (tmp_path / "to").mkdir()

    assert "cannot copy the database" in _fail(small.run("backup", "--to", str(tmp_path / "to/a.tar.gz")))
    assert "the installation is unchanged" in _fail(small.run("restore", str(archive), "--force"))
    assert "cannot write" in _fail(installation.run("backup", "--to", str(tmp_path / "absent/a.tar.gz")))
    assert "exists" in _fail(installation.run("backup", "--to", str(archive)))

    assert not list((tmp_path / "to").iterdir())
    assert _hash_files(installation.home) == before


@pytest.fixture
def two_databases() -> Iterator[tuple[str, str]]:
    """The URLs of two databases of PostgreSQL."""
    with postgresql() as first, postgresql() as second:
        yield first, second


@pytest.mark.slow
def test_postgresql(tmp_path: Path, two_databases: tuple[str, str]) -> None:
    """Into an empty database; with --force also over a database with tables, which are then kept in a schema."""
    first, second = (
        Installation(tmp_path / name / "home", {"DATABASE_URL": url})
        for name, url in zip(("first", "second"), two_databases, strict=True)
    )
    for installation in (first, second):
        installation.home.parent.mkdir()
    assert first.run("prepare").returncode == 0
    first.execute(_CREATE_ROWS)
    path = tmp_path / "a.tar.gz"
    process = first.run("backup", "--to", str(path), "--with-secrets")
    assert process.returncode == 0, process.stderr

    process = second.run("restore", str(path), "--json")

    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["previous"] == ""
    second.execute(_CHECK_ROWS + _READ_SECRET)
    assert not second.find().keys() & {"database-migrations", "database-newer", "database-integrity"}
    assert "--force" in _fail(second.run("restore", str(path)))
    newer = _rebuild(path, tmp_path / "newer.tar.gz", migrations=["fleet.9999_future"])
    assert "fleet.9999_future" in _fail(second.run("restore", str(newer), "--force"))
    short = _rebuild(path, tmp_path / "short.tar.gz", rows={"auth_user": 9})
    assert "auth_user" in _fail(second.run("restore", str(short), "--force"))
    second.execute("from django.contrib.auth.models import User\nassert User.objects.count() == 2\n")

    process = second.run("restore", str(path), "--force", "--json")

    assert process.returncode == 0, process.stderr
    schema = json.loads(process.stdout)["previous"].removeprefix("schema ")
    second.execute(_CHECK_ROWS + _READ_SECRET)
    second.execute(
        "from django.db import connection\n"
        "cursor = connection.cursor()\n"
        f"cursor.execute('SELECT count(*) FROM {schema}.auth_user')\n"
        "assert cursor.fetchone() == (2,)\n"
        "cursor.execute(\"SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'refloat_restore%'\")\n"
        "assert cursor.fetchone() == (0,)\n"
    )
