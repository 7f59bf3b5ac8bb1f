"""Private folders and files for keys, databases, logs and tokens: only their owner can read them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def create_private_folder(folder: Path) -> None:
    """Create a folder with mode 0700, and missing parent folders. Raises OSError.

    An existing folder keeps its mode, because the operator may have changed it.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        # Not `parents=True`, which creates parent folders with the default mode.
        if folder.parent == folder:
            raise
        create_private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def write_private_file(path: Path, text: str) -> None:
    """Write a file with mode 0600 atomically: a reader sees the old or the new content."""
    new_path = path.with_name(f"{path.name}.new")
    new_path.unlink(missing_ok=True)
    descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    new_path.replace(path)


def create_private_file(path: Path, text: str) -> bool:
    """Create a file with mode 0600 and return True; return False if it exists already. Raises OSError.

    Of several processes that call this at once, one creates the file. No process reads an unfinished file.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        new_path = Path(folder) / path.name
        write_private_file(new_path, text)
        try:
            # Unlike a rename, a link never replaces the file of another process.
            path.hardlink_to(new_path)
        except FileExistsError:
            return False
    return True
