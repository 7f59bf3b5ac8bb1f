"""Folders for keys, databases, logs and tokens: whoever shares the machine has no business in them."""

from __future__ import annotations

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
