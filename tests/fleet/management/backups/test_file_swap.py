"""Files are replaced and kept; after an error, everything is as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.management.backups import file_swap


def _texts(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _swap(restored: Path, home: Path) -> None:
    with file_swap.kept_files(home / "kept", home / "secret_key") as kept_folder:
        file_swap.write_key(home / "secret_key", "new key")
        file_swap.replace_database(restored, home / "db", kept_folder)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a database, its log and a key."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name, text in (("db", "old"), ("db-wal", "log"), ("secret_key", "old key")):
        (folder / name).write_text(text)
    return folder


def test_previous_files_are_kept(home: Path, tmp_path: Path) -> None:
    """The log of the previous database is not beside the restored one."""
    (tmp_path / "new").write_text("new")
    _swap(tmp_path / "new", home)
    assert _texts(home) == {
        "db": "new",
        "secret_key": "new key",
        "kept/db": "old",
        "kept/db-wal": "log",
        "kept/secret_key": "old key",
    }


def test_error_of_the_swap(home: Path, tmp_path: Path) -> None:
    """The restored file is missing: key, database and log come back, and no folder stays."""
    before = _texts(home)
    with pytest.raises(FileNotFoundError):
        _swap(tmp_path / "absent", home)
    assert _texts(home) == before
    assert not (home / "kept").exists()


def test_new_home(tmp_path: Path) -> None:
    """Nothing is kept; after an error, there is no key."""
    (tmp_path / "new").write_text("new")
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(FileNotFoundError):
        _swap(tmp_path / "absent", home)
    assert _texts(home) == {}
    _swap(tmp_path / "new", home)
    assert _texts(home) == {"db": "new", "secret_key": "new key"}
    assert not (home / "kept").exists()


def test_copied_folder(tmp_path: Path) -> None:
    """A missing one is not copied, and can be removed."""
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls/key.pem").write_text("key")
    copy = file_swap.copy_folder(tmp_path / "tls", tmp_path, "copy")
    assert copy is not None
    assert _texts(copy) == {"key.pem": "key"}
    file_swap.remove_folder(copy)
    file_swap.remove_folder(copy)
    assert file_swap.copy_folder(tmp_path / "absent", tmp_path, "copy") is None
    assert not copy.exists()
