"""Folders that only their owner may enter."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.processes import folders
from fleet.processes.supervisor import Supervisor


@pytest.fixture(autouse=True)
def usual_mask() -> Iterator[None]:
    """What most people have: others may read."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_folders_are_ours_alone(tmp_path: Path) -> None:
    """The folder itself, and each above it that was missing."""
    folder = tmp_path / "home" / "fleet" / "keys"
    folders.make_private(folder)
    assert [_mode(one) for one in (folder, folder.parent, folder.parent.parent)] == [0o700] * 3


def test_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """And so do those above it."""
    tmp_path.chmod(0o755)
    (tmp_path / "home").mkdir(mode=0o750)
    folders.make_private(tmp_path / "home")
    folders.make_private(tmp_path / "home" / "log")
    assert (_mode(tmp_path), _mode(tmp_path / "home")) == (0o755, 0o750)


def test_file_in_the_way(tmp_path: Path) -> None:
    """As `mkdir` has it: whoever asks says it in a sentence of their own."""
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        folders.make_private(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        folders.make_private(tmp_path / "file" / "log")


def test_logs_are_ours_alone(tmp_path: Path) -> None:
    """Of a program started in a home that is not there yet."""
    with Supervisor(tmp_path / "home" / "log"):
        assert [_mode(tmp_path / "home" / name) for name in (".", "log")] == [0o700, 0o700]


def test_private_file_is_replaced_whole(tmp_path: Path) -> None:
    """Its owner alone may read it, also where the old one was open to others, and nothing is left beside it."""
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)

    folders.write_private(path, "new")

    assert (path.read_text(), _mode(path)) == ("new", 0o600)
    assert list(tmp_path.iterdir()) == [path]
