"""Archives are written whole or not at all, and are read only if every byte is as it was written."""

from __future__ import annotations

import io
import stat
import tarfile
from pathlib import Path

import pytest

from fleet.management.backups import BackupError
from fleet.management.backups.archive import checksum_of, copy_private, extract_archive, write_archive
from fleet.management.backups.manifest import Manifest


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A folder to work in, and an empty one to extract into."""
    paths = (tmp_path / "work", tmp_path / "extracted")
    for path in paths:
        path.mkdir()
    return paths


def _write(path: Path, work_folder: Path) -> Manifest:
    files = {"database/a.csv": work_folder / "a", "settings.json": work_folder / "b"}
    files["database/a.csv"].write_bytes(bytes(range(256)) * 9000)
    files["settings.json"].write_text("{}")
    checksums = {name: checksum_of(file) for name, file in files.items()}
    manifest = Manifest(
        "1", "2026-11-28T12:00:00+00:00", "sqlite", ["a.1"], {"a": 1}, checksums, has_secrets=False
    )
    write_archive(path, work_folder, manifest, files)
    return manifest


def test_archive_is_read_as_written(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    """In folders, as private files."""
    work_folder, extracted = folders
    manifest = _write(tmp_path / "a.tar.gz", work_folder)

    assert extract_archive(tmp_path / "a.tar.gz", extracted) == manifest

    assert stat.S_IMODE((tmp_path / "a.tar.gz").stat().st_mode) == 0o600
    assert (extracted / "database/a.csv").read_bytes() == (work_folder / "a").read_bytes()
    assert stat.S_IMODE((extracted / "database/a.csv").stat().st_mode) == 0o600


def test_existing_file_is_not_replaced(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    """Even if it was created meanwhile."""
    (tmp_path / "a.tar.gz").write_text("mine")
    with pytest.raises(FileExistsError):
        _write(tmp_path / "a.tar.gz", folders[0])
    assert (tmp_path / "a.tar.gz").read_text() == "mine"


@pytest.mark.parametrize("position", [0, 40, -500])
def test_changed_byte(tmp_path: Path, folders: tuple[Path, Path], position: int) -> None:
    """Found by the compression, the archive or the checksum."""
    _write(tmp_path / "a.tar.gz", folders[0])
    data = bytearray((tmp_path / "a.tar.gz").read_bytes())
    data[position] ^= 0x55
    (tmp_path / "a.tar.gz").write_bytes(data)
    with pytest.raises(BackupError, match="use another"):
        extract_archive(tmp_path / "a.tar.gz", folders[1])


@pytest.mark.parametrize(
    ("name", "kind", "phrase"),
    [
        ("secret_key", tarfile.REGTYPE, "unexpected member 'secret_key'"),
        ("database/a.csv", tarfile.SYMTYPE, "unexpected member 'database/a.csv'"),
        ("../escaped", tarfile.REGTYPE, "unexpected member '../escaped'"),
    ],
)
def test_members_that_the_manifest_does_not_have(
    tmp_path: Path, folders: tuple[Path, Path], name: str, kind: bytes, phrase: str
) -> None:
    """They are not extracted."""
    manifest = _write(tmp_path / "a.tar.gz", folders[0])
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        text = manifest.to_text().encode()
        for member_name, member_kind, data in (("manifest.json", tarfile.REGTYPE, text), (name, kind, b"x")):
            member = tarfile.TarInfo(member_name)
            member.type = member_kind
            member.linkname = "a"
            member.size = len(data) if member_kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(data))
    with pytest.raises(BackupError) as caught:
        extract_archive(tmp_path / "b.tar.gz", folders[1])
    assert phrase in str(caught.value)
    assert list(folders[1].iterdir()) == []


def test_archive_without_a_member_or_manifest(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    """The message names the member."""
    manifest = _write(tmp_path / "a.tar.gz", folders[0])
    write_archive(tmp_path / "b.tar.gz", folders[1], manifest, {})
    with pytest.raises(BackupError, match=r"it lacks database/a\.csv"):
        extract_archive(tmp_path / "b.tar.gz", folders[1])
    with tarfile.open(tmp_path / "c.tar.gz", "w:gz"):
        pass
    with pytest.raises(BackupError, match="not an archive of `refloat backup`"):
        extract_archive(tmp_path / "c.tar.gz", folders[1])


def test_private_copy(tmp_path: Path) -> None:
    """An existing file is not replaced."""
    (tmp_path / "a").write_text("key")
    copy_private(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_text() == "key"
    assert stat.S_IMODE((tmp_path / "b").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        copy_private(tmp_path / "a", tmp_path / "b")
