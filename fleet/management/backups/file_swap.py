"""Files of an installation are replaced by restored ones; the previous ones are kept, and come back after an error."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from fleet.management.backups.archive import copy_private
from fleet.management.backups.sqlite_database import list_side_files
from fleet.processes import folders


@contextlib.contextmanager
def kept_files(folder: Path, key_file: Path | None) -> Iterator[Path]:
    """Copy the key to `folder` if a key will replace it; after an error, the key is the previous one. Raises OSError.

    Yields `folder`, which exists only if something is kept.
    """
    had_key = key_file is not None and key_file.exists()
    if key_file is not None and had_key:
        folders.create_private_folder(folder)
        copy_private(key_file, folder / key_file.name)
    try:
        yield folder
    except BaseException:
        if key_file is not None:
            if had_key:
                write_key(key_file, (folder / key_file.name).read_text())
            else:
                key_file.unlink(missing_ok=True)
        remove_folder(folder)
        raise


def write_key(path: Path, key: str) -> None:
    """Replace the secret key. Raises OSError."""
    folders.write_private_file(path, key)


def replace_database(restored: Path, database: Path, kept_folder: Path) -> None:
    """Move a restored file to the place of the database, and keep the previous one. Raises OSError.

    After an error, the previous database is in its place.
    """
    moved_paths: list[tuple[Path, Path]] = []
    if database.exists():
        folders.create_private_folder(kept_folder)
        copy_private(database, kept_folder / database.name)
    try:
        # Before the database is replaced: SQLite would apply the log of the previous file to the restored one.
        for side_path in list_side_files(database):
            kept_path = kept_folder / side_path.name
            side_path.rename(kept_path)
            moved_paths.append((side_path, kept_path))
        restored.replace(database)
    except OSError:
        for side_path, kept_path in moved_paths:
            kept_path.rename(side_path)
        raise
    _sync_folder(database.parent)


def copy_folder(source: Path, parent: Path, name: str) -> Path | None:
    """Copy a folder of private files to a new folder, and return it; None if there is no `source`. Raises OSError."""
    if not source.is_dir():
        return None
    target = parent / name
    folders.create_private_folder(target)
    for path in sorted(source.iterdir()):
        copy_private(path, target / path.name)
    return target


def remove_folder(folder: Path) -> None:
    """Remove a folder with its files; a missing one is fine."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _sync_folder(folder: Path) -> None:
    """Write the names of a folder to the disk, on file systems that can. The files have their names already."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
