"""Which archives this program can restore."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fleet.management.backups import BackupError
from fleet.management.backups.manifest import (
    FORMAT,
    Manifest,
    check_compatibility,
    describe_row_differences,
    parse_manifest,
)

_MANIFEST = Manifest(
    version="1.2.0",
    created_at="2026-11-28T12:00:00+00:00",
    database="sqlite",
    migrations=["fleet.0001_initial"],
    rows={"auth_user": 2},
    checksums={"database/refloat.sqlite3": "0" * 64},
    has_secrets=False,
)


def _text(**fields: Any) -> str:
    return json.dumps({**json.loads(_MANIFEST.to_text()), **fields})


def test_manifest_is_read_as_written() -> None:
    """By way of JSON."""
    assert parse_manifest(_MANIFEST.to_text()) == _MANIFEST


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ("{}", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        (_text(format=FORMAT + 1), f"Refloat 1.2.0 in format {FORMAT + 1}"),
        (_text(other=1), "invalid"),
        (_text(rows={"auth_user": "many"}), "invalid"),
        (_text(rows=[]), "invalid"),
        (_text(checksums={"../secret_key": "0"}), "invalid name '../secret_key'"),
        (_text(checksums={"/secret_key": "0"}), "invalid name '/secret_key'"),
        (_text(checksums={"a/./b": "0"}), "invalid name 'a/./b'"),
    ],
)
def test_invalid_manifest(text: str, phrase: str) -> None:
    """The message says why."""
    with pytest.raises(BackupError, match="archive") as caught:
        parse_manifest(text)
    assert phrase in str(caught.value)


def test_archive_of_an_older_version_is_compatible() -> None:
    """The program has all of its migrations, and more."""
    check_compatibility(_MANIFEST, "sqlite", {"fleet.0001_initial", "fleet.0002_more"})


def test_archive_of_another_database() -> None:
    """Either way, with what to set."""
    with pytest.raises(BackupError, match=r"set DATABASE_URL to a database of sqlite, or unset it$"):
        check_compatibility(_MANIFEST, "postgresql", _MANIFEST.migrations)
    with pytest.raises(BackupError, match=r"set DATABASE_URL to a database of postgresql$"):
        check_compatibility(replace(_MANIFEST, database="postgresql"), "sqlite", _MANIFEST.migrations)


def test_archive_of_a_newer_version() -> None:
    """The message has the version and some of the migrations."""
    newer = replace(_MANIFEST, migrations=[f"fleet.000{number}" for number in range(1, 7)])
    with pytest.raises(BackupError) as caught:
        check_compatibility(newer, "sqlite", {"fleet.0001"})
    assert "Refloat 1.2.0, which is newer" in str(caught.value)
    assert "fleet.0002, fleet.0003, fleet.0004 and 2 more" in str(caught.value)


def test_differences_of_rows() -> None:
    """Of missing and additional tables, too."""
    assert describe_row_differences({"a": 1, "b": 2}, {"b": 2, "a": 1, "c": 0}) == ""
    assert (
        describe_row_differences({"a": 1, "b": 2}, {"b": 3, "c": 4})
        == "a has 0 rows instead of 1; b has 3 rows instead of 2; c has 4 rows instead of 0"
    )
