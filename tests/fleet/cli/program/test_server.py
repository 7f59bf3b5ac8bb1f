from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.meta.house import ROOT


def _run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fleet.cli", *arguments],
        cwd=home,
        env={**os.environ, "REFLOAT_HOME": str(home / "state"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("name", ["demo", "serve", "prepare", "doctor", "backup", "restore", "user", "token"])
def test_help_shows_the_options_of_the_command(tmp_path: Path, name: str) -> None:
    """Under the name that was typed, without those of every Django command."""
    process = _run(tmp_path, name, "--help")
    assert process.stdout.startswith(f"Usage: refloat {name} [-h]"), process
    assert "--settings" not in process.stdout
    assert "Traceback" not in process.stdout


def test_arguments_and_exit_code_are_those_of_the_command(tmp_path: Path) -> None:
    """A new database, a user in it, and errors with code 2."""
    assert _run(tmp_path, "prepare").returncode == 0
    creation = _run(tmp_path, "user", "create", "ada", "--role", "operator")
    assert creation.returncode == 0, creation
    assert "ada" in _run(tmp_path, "user", "list").stdout
    refusal = _run(tmp_path, "serve", "--port", "many")
    assert refusal.returncode == 2
    assert "refloat serve: error: argument --port: invalid int value: 'many'" in refusal.stderr


def test_cluster_commands_are_those_of_the_console(tmp_path: Path) -> None:
    """In the group that also tests connections without a console."""
    process = _run(tmp_path, "cluster", "add", "--help")
    assert process.stdout.startswith("Usage: refloat cluster add [-h]"), process
    assert "--identity FILE" in process.stdout
    assert "prepare` first" in _run(tmp_path, "cluster", "list").stderr
    commands = _run(tmp_path, "cluster", "--help").stdout
    assert all(f"  {name} " in commands for name in ("add", "edit", "test")), commands
