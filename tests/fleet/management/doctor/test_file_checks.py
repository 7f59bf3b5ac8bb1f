from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fleet.management.doctor.file_checks import (
    FileFacts,
    check_disk_space,
    check_home,
    check_modes,
    check_owners,
    check_secret_key,
)
from fleet.management.doctor.findings import CheckFinding, CheckVerdict

_MIB = 1024 * 1024


def _check_home(home: Path, *, has_database: bool = False) -> dict[str, CheckFinding]:
    findings = check_home(home, [], is_key_configured=False, has_database=has_database)
    return {finding.name: finding for finding in findings}


def test_absent_home_is_one_error(tmp_path: Path) -> None:
    """It is not created."""
    findings = _check_home(tmp_path / "absent")

    assert {name: finding.verdict for name, finding in findings.items()} == {
        "home-folder": CheckVerdict.ERROR
    }
    assert not (tmp_path / "absent").exists()


def test_real_modes_are_read(tmp_path: Path) -> None:
    """A key that all users can read is an error, with the command that repairs it; in a closed folder a warning."""
    key = tmp_path / "secret_key"
    key.touch()
    key.chmod(0o644)
    tmp_path.chmod(0o711)
    findings = check_home(tmp_path, [], is_key_configured=False, has_database=False)
    assert [finding.verdict for finding in findings if str(key) in finding.summary] == [CheckVerdict.ERROR]

    tmp_path.chmod(0o700)
    finding = _check_home(tmp_path)["file-modes"]
    assert finding.verdict is CheckVerdict.WARNING
    assert "a copy of it outside" in finding.summary
    assert finding.remedy == f"Run `chmod 600 {key}`."

    key.chmod(0o600)
    assert _check_home(tmp_path)["file-modes"].verdict is CheckVerdict.OK


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [
        (stat.S_IFREG | 0o600, CheckVerdict.OK),
        (stat.S_IFREG | 0o640, CheckVerdict.WARNING),
        (stat.S_IFREG | 0o604, CheckVerdict.ERROR),
        (stat.S_IFDIR | 0o700, CheckVerdict.OK),
        (stat.S_IFDIR | 0o755, CheckVerdict.WARNING),
    ],
)
def test_modes(mode: int, verdict: CheckVerdict) -> None:
    """Others must not read files; groups and folders may be what the operator wants."""
    home = FileFacts(Path("home"), stat.S_IFDIR | 0o700, 0)

    (finding,) = check_modes([home, FileFacts(Path("x"), mode, 0)])

    assert finding.verdict is verdict


@pytest.mark.parametrize(
    ("has_key", "has_database", "verdict"),
    [
        (True, True, CheckVerdict.OK),
        (False, False, CheckVerdict.OK),
        (False, True, CheckVerdict.ERROR),
    ],
)
def test_key_of_a_database_must_exist(has_key: bool, has_database: bool, verdict: CheckVerdict) -> None:
    """A fresh installation has neither."""
    finding = check_secret_key(has_key=has_key, has_database=has_database, home=Path("x"))

    assert finding.verdict is verdict


def test_owner_of_a_file_differs_from_the_owner_of_the_home() -> None:
    """As after a command that ran as root."""
    home, database = FileFacts(Path("home"), 0, 61001), FileFacts(Path("home/database"), 0, 61002)

    (finding,) = check_owners([home, database], 61001)

    assert finding.verdict is CheckVerdict.ERROR
    assert finding.remedy.startswith("Run `chown 61001 home/database`")


def test_command_runs_as_another_user() -> None:
    """Its results may differ from those of the console."""
    home = FileFacts(Path("home"), 0, 61001)

    assert next(check_owners([home], 61002)).verdict is CheckVerdict.WARNING
    assert next(check_owners([home], 61001)).verdict is CheckVerdict.OK


@pytest.mark.parametrize(
    ("free_mib", "size", "verdict"),
    [
        (50, "50 MiB", CheckVerdict.ERROR),
        (500, "500 MiB", CheckVerdict.WARNING),
        (5000, "5,000 MiB", CheckVerdict.OK),
        (80 * 1024, "80 GiB", CheckVerdict.OK),
    ],
)
def test_disk_space(free_mib: int, size: str, verdict: CheckVerdict) -> None:
    """The size is in the sentence."""
    (finding,) = check_disk_space(Path("x"), free_mib * _MIB)

    assert finding.verdict is verdict
    assert f"{size} are free" in finding.summary


def test_home_of_this_process_is_writable(tmp_path: Path) -> None:
    findings = _check_home(tmp_path)

    assert findings["home-folder"].verdict is CheckVerdict.OK
    assert findings["file-owners"].verdict is CheckVerdict.OK
    assert tmp_path.stat().st_uid == os.geteuid()
