"""Folders and files for keys, databases, logs and tokens: whoever shares the machine has no business in them."""

from __future__ import annotations

import os
from pathlib import Path


def make_private(folder: Path) -> None:
    """Make a folder that only its owner may enter, and those above it that are missing. Raises OSError.

    One that is there keeps its mode: somebody may have let others in.
    """
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        # Not `parents=True`: it gives those above the usual mode.
        if folder.parent == folder:
            raise
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone may read; whoever reads it meanwhile sees the old one or the new one."""
    new_path = path.with_name(f"{path.name}.new")
    new_path.unlink(missing_ok=True)
    descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    new_path.replace(path)
