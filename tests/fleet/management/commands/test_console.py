"""`manage.py console` from outside: wrong starts are one line and exit code 2, and leave nothing running."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fleet.processes import valkey
from tests.meta.house import ROOT


def _console(home: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("REFLOAT_", "REDIS_"))}
    return subprocess.run(
        [sys.executable, "manage.py", "console", *args],
        cwd=ROOT,
        env={**known, "REFLOAT_HOME": str(home), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        ([], {"REFLOAT_DEBUG": "perhaps"}, "REFLOAT_DEBUG='perhaps' is not a switch"),
        ([], {"REFLOAT_TLS_CA": "nowhere.pem"}, "REFLOAT_TLS_CA=nowhere.pem cannot be read"),
        ([], {"REDIS_URL": "redis://127.0.0.1:1/0"}, "REDIS_URL=redis://127.0.0.1:1/0 does not answer"),
        ([], {"DATABASE_URL": "oops"}, "DATABASE_URL cannot be read"),
        (["--port", "70000"], {}, "70000"),
    ],
)
def test_wrong_start_is_one_line(tmp_path: Path, args: list[str], env: dict[str, str], said: str) -> None:
    """The line names what is wrong, no traceback, exit code 2."""
    ended = _console(tmp_path, *args, **env)

    assert ended.returncode == 2
    assert ended.stderr.startswith("refloat: ")
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert valkey.running_url(tmp_path / "valkey") is None


def test_port_in_use(tmp_path: Path) -> None:
    """Two consoles on one port: the second says so before it starts anything."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        ended = _console(tmp_path, "--port", port)

    assert ended.returncode == 2
    assert ended.stderr.startswith(f"refloat: cannot listen on 127.0.0.1:{port}")
    assert valkey.running_url(tmp_path / "valkey") is None


def test_unknown_flag_is_refused(tmp_path: Path) -> None:
    """Argparse's own line, exit code 2."""
    ended = _console(tmp_path, "--prot", "8000")

    assert ended.returncode == 2
    assert "unrecognized arguments: --prot" in ended.stderr
