"""The archive file: a tar.gz file with the manifest first, written under a temporary name; mode 0600."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from gzip import BadGzipFile
from pathlib import Path
from typing import IO

from fleet.management.backups import BackupError
from fleet.management.backups.manifest import Manifest, parse_manifest
from fleet.processes import folders

MANIFEST_NAME = "manifest.json"
#: Longest manifest, bytes; that of a database with 90 days of history has 10,000.
_MAX_MANIFEST_BYTES = 4 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
#: Errors of file systems without links, such as shares of Windows.
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})


def checksum_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_archive(path: Path, work_folder: Path, manifest: Manifest, files: Mapping[str, Path]) -> None:
    """Write an archive of `files` by member name to `path`. Raises OSError; then there is no file at `path`.

    `work_folder`: on the file system of `path`.
    """
    new_path = work_folder / "archive.new"
    descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=6) as archive:
            text = manifest.to_text().encode()
            archive.addfile(_describe_member(MANIFEST_NAME, len(text)), io.BytesIO(text))
            for name, file_path in files.items():
                with file_path.open("rb") as file:
                    archive.addfile(_describe_member(name, file_path.stat().st_size), file)
        stream.flush()
        os.fsync(stream.fileno())
    _publish(new_path, path)


def _publish(new_path: Path, path: Path) -> None:
    """Give a finished file its name. Raises FileExistsError if the name is taken."""
    try:
        # A link, unlike a rename, never replaces a file that was created meanwhile.
        path.hardlink_to(new_path)
    except OSError as error:
        if error.errno not in _NO_LINKS or path.exists():
            raise
        new_path.rename(path)


def extract_archive(path: Path, folder: Path) -> Manifest:
    """Extract an archive into an empty private folder, and return its manifest.

    Raises BackupError if the archive is damaged, incomplete or no archive; OSError if a file cannot be read or written.
    """
    with _readable_archive(path) as archive:
        manifest = _read_manifest(archive)
        remaining_names = set(manifest.checksums)
        # Not by iteration, which would begin with the manifest again.
        while (member := archive.next()) is not None:
            if not member.isfile() or member.name not in remaining_names:
                raise BackupError(
                    f"the archive has the unexpected member {member.name!r}: use another archive"
                )
            remaining_names.discard(member.name)
            member_path = folder / member.name
            folders.create_private_folder(member_path.parent)
            checksum = _extract_member(archive, member, member_path)
            if checksum != manifest.checksums[member.name]:
                raise BackupError(f"the archive is damaged: {member.name} was changed; use another archive")
    if remaining_names:
        raise BackupError(f"the archive is incomplete: it lacks {min(remaining_names)}; use another archive")
    return manifest


@contextmanager
def _readable_archive(path: Path) -> Iterator[tarfile.TarFile]:
    """Open an archive as a stream. Errors of its content become BackupError; those of the file system stay."""
    try:
        with tarfile.open(path, mode="r|gz") as archive:
            yield archive
    except (tarfile.TarError, EOFError, zlib.error, BadGzipFile) as error:
        raise BackupError(
            f"{path} is not an archive of `refloat backup`, or is damaged ({error}): use another archive"
        ) from error


def _read_manifest(archive: tarfile.TarFile) -> Manifest:
    member = archive.next()
    if (
        member is None
        or member.name != MANIFEST_NAME
        or not member.isfile()
        or member.size > _MAX_MANIFEST_BYTES
    ):
        raise BackupError("the file is not an archive of `refloat backup`: use another file")
    return parse_manifest(_open_member(archive, member).read().decode(errors="replace"))


def _extract_member(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> str:
    """Write a member to a new private file, and return its SHA-256."""
    digest = hashlib.sha256()
    source = _open_member(archive, member)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as target:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            target.write(chunk)
    return digest.hexdigest()


def _open_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    stream = archive.extractfile(member)
    assert stream is not None, "a regular file has content"
    return stream


def _describe_member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o600
    return member


def copy_private(source: Path, target: Path) -> None:
    """Copy a file to a new file with mode 0600. Raises OSError."""
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with source.open("rb") as content, os.fdopen(descriptor, "wb") as file:
        shutil.copyfileobj(content, file)
        file.flush()
        os.fsync(file.fileno())
