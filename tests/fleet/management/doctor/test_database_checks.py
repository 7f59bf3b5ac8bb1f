from __future__ import annotations

from pathlib import Path

import pytest
from django.db import DatabaseError, OperationalError, connection
from django.db.migrations.recorder import MigrationRecorder

from fleet.management.doctor import database_checks
from fleet.management.doctor.database_checks import MigrationFacts, check_migrations, check_version
from fleet.management.doctor.findings import CheckFinding, CheckVerdict


def _check_database() -> dict[str, CheckFinding]:
    return {finding.name: finding for finding in database_checks.check_database()}


@pytest.mark.django_db
def test_prepared_database_has_no_problem() -> None:
    """Every check runs."""
    findings = _check_database()

    assert {finding.verdict for finding in findings.values()} == {CheckVerdict.OK}
    assert "database-integrity" in findings
    assert database_checks.read_database_time() is None


@pytest.mark.django_db
def test_database_of_a_newer_program() -> None:
    """A migration that the program does not have."""
    MigrationRecorder(connection).record_applied("fleet", "9999_future")

    finding = _check_database()["database-newer"]

    assert finding.verdict is CheckVerdict.ERROR
    assert "fleet.9999_future" in finding.summary
    assert "restore the backup" in finding.remedy


@pytest.mark.django_db
def test_database_of_an_older_program() -> None:
    """The newest migration was not applied."""
    recorder = MigrationRecorder(connection)
    newest = max(name for app, name in recorder.applied_migrations() if app == "fleet")
    recorder.record_unapplied("fleet", newest)

    finding = _check_database()["database-migrations"]

    assert finding.verdict is CheckVerdict.ERROR
    assert f"1 migration to apply (fleet.{newest})" in finding.summary
    assert "refloat prepare" in finding.remedy


def test_names_of_many_migrations_are_cut() -> None:
    names = [f"fleet.{number:04}" for number in range(1, 8)]

    (finding,) = check_migrations(MigrationFacts(5, names, ()))

    assert "7 migrations to apply (fleet.0001, fleet.0002, fleet.0003 and 4 more)" in finding.summary


def test_database_without_migrations_is_not_prepared() -> None:
    (finding,) = check_migrations(MigrationFacts(0, ["fleet.0001_initial"], ()))

    assert finding.summary == "The database is not prepared."


@pytest.mark.parametrize(
    ("version", "verdict"),
    [((13, 4), CheckVerdict.ERROR), ((14, 0), CheckVerdict.OK), ((17, 2), CheckVerdict.OK)],
)
def test_version(version: tuple[int, ...], verdict: CheckVerdict) -> None:
    """Both versions are in the sentence of an error."""
    finding = check_version("PostgreSQL", version, (14,))

    assert finding.verdict is verdict
    assert ".".join(map(str, version)) in finding.summary


@pytest.mark.parametrize(
    ("problem", "name", "phrase"),
    [
        (DatabaseError("file is not a database"), "database-integrity", "restore the database"),
        (OperationalError("connection refused\nsecond line"), "database-connection", "Start the database"),
    ],
)
def test_failures(problem: DatabaseError, name: str, phrase: str) -> None:
    """A damaged file cannot be started."""
    finding = database_checks.describe_failure(problem, "x.sqlite3")

    assert (finding.name, finding.verdict) == (name, CheckVerdict.ERROR)
    assert phrase in finding.remedy
    assert "\n" not in finding.summary


def test_absent_file_is_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "NAME", tmp_path / "absent.sqlite3")

    (finding,) = _check_database().values()

    assert "does not exist" in finding.summary
    assert list(tmp_path.iterdir()) == []
