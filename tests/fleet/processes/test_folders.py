"""Folders that are accessible to their owner only."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.processes import folders
from fleet.processes.supervisor import Supervisor


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """Set the usual umask, which lets others read."""
    previous_umask = os.umask(0o022)
    yield
    os.umask(previous_umask)


def _read_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_folders_are_private(tmp_path: Path) -> None:
    """The folder and all missing parents have mode 0700."""
    folder = tmp_path / "home" / "fleet" / "keys"
    folders.create_private_folder(folder)
    assert [_read_mode(path) for path in (folder, folder.parent, folder.parent.parent)] == [0o700] * 3


def test_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    """Existing parents keep their mode as well."""
    tmp_path.chmod(0o755)
    (tmp_path / "home").mkdir(mode=0o750)
    folders.create_private_folder(tmp_path / "home")
    folders.create_private_folder(tmp_path / "home" / "log")
    assert (_read_mode(tmp_path), _read_mode(tmp_path / "home")) == (0o755, 0o750)


def test_file_in_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    """The errors are those of `mkdir`; callers explain them."""
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        folders.create_private_folder(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        folders.create_private_folder(tmp_path / "file" / "log")


def test_log_folder_of_a_new_home_is_private(tmp_path: Path) -> None:
    """A supervisor creates the home and the log folder."""
    with Supervisor(tmp_path / "home" / "log"):
        assert [_read_mode(tmp_path / "home" / name) for name in (".", "log")] == [0o700, 0o700]


def test_private_file_is_replaced_at_once(tmp_path: Path) -> None:
    """Only its owner may read the new file, whatever the mode of the old file is, and no other file is left."""
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)

    folders.write_private_file(path, "new")

    assert (path.read_text(), _read_mode(path)) == ("new", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_private_file_is_created_once_and_whole(tmp_path: Path) -> None:
    """Of many processes one creates the file; all read its content, never an unfinished file."""
    path = tmp_path / "secret_key"
    program = """
import sys, pathlib
from fleet.processes import folders
path = pathlib.Path(sys.argv[1])
sys.stdin.readline()
was_created = folders.create_private_file(path, sys.argv[2])
print(was_created, path.read_text())
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path), f"key-{number}" * 1000],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    responses = [process.communicate()[0].split() for process in processes]
    assert sorted(was_created for was_created, _ in responses) == ["False", "False", "False", "True"]
    assert {text for _, text in responses} == {path.read_text()}
    assert (_read_mode(path), list(tmp_path.iterdir())) == (0o600, [path])
