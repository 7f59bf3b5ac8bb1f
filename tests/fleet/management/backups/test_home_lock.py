"""Programs share a home folder; a restore has it alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.management.backups.home_lock import HomeInUseError, lock_home


def test_programs_share_a_home(tmp_path: Path) -> None:
    """A restore waits for none of them: it is refused."""
    with (
        lock_home(tmp_path, is_exclusive=False),
        lock_home(tmp_path, is_exclusive=False),
        pytest.raises(HomeInUseError),
        lock_home(tmp_path, is_exclusive=True),
    ):
        raise AssertionError("the lock is held")


def test_a_restore_has_a_home_alone(tmp_path: Path) -> None:
    """Until it has ended; a missing folder is created."""
    home = tmp_path / "new" / "home"
    with lock_home(home, is_exclusive=True):
        for is_exclusive in (False, True):
            with pytest.raises(HomeInUseError), lock_home(home, is_exclusive=is_exclusive):
                raise AssertionError("the lock is held")
    with lock_home(home, is_exclusive=True):
        assert home.is_dir()
