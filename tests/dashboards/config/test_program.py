from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.meta.house import ROOT


def _run(program: list[str], home: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "REFLOAT_HOME": home, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, *program], env=env, cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def test_wrong_setting_is_one_line_and_code_2(tmp_path: Path) -> None:
    """With `manage.py`, too."""
    for program in (["-m", "dashboards", "prepare"], ["manage.py", "prepare"]):
        process = _run(program, str(tmp_path), DATABASE_URL="nonsense")
        assert process.returncode == 2
        assert process.stderr.startswith("refloat: DATABASE_URL is invalid")
        assert process.stderr.count("\n") == 1


def test_database_that_is_not_prepared_says_what_to_run(tmp_path: Path) -> None:
    """And leaves no empty database, which `refloat restore` would refuse to replace, and no key."""
    home = tmp_path / "home"
    process = _run(["-m", "dashboards", "user", "list"], str(home))
    assert process.returncode == 2
    assert "run `refloat prepare` first" in process.stderr
    assert process.stderr.count("\n") == 1
    assert not home.exists()


def test_help_creates_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    process = _run(["-m", "dashboards", "serve", "--help"], str(home))
    assert process.returncode == 0
    assert "--port" in process.stdout
    assert not home.exists()


def test_slow_command_shows_on_a_terminal_that_it_loads(tmp_path: Path) -> None:
    """Its own first line comes seconds later."""
    reader, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "dashboards", "serve", "--port", "99999999"],
        env={**os.environ, "REFLOAT_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        stderr=terminal,
    )
    os.close(terminal)
    with os.fdopen(reader, "rb", buffering=0) as lines:
        first_bytes = lines.read(1024)
        assert process.wait(120) == 2
    assert first_bytes.startswith("Loading Refloat…".encode())
