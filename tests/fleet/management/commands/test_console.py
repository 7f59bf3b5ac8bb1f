"""`manage.py console` from outside: wrong starts are one line and exit code 2, and leave nothing running."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import execute_from_command_line
from pytest_django import Settings

from fleet.processes import valkey
from tests.meta.house import ROOT


def _console(home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith(("REFLOAT_", "REDIS_"))}
    return subprocess.run(
        [sys.executable, "manage.py", "console"],
        cwd=ROOT,
        env={**known, "REFLOAT_HOME": str(home), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def console(
    tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[object, str]]:
    """Runs the command in this process, until it refuses to start: exit code, and what stderr says."""
    settings.REFLOAT_HOME = tmp_path

    def run(*args: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as ended:
            execute_from_command_line(["manage.py", "console", *args])
        return ended.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"REFLOAT_DEBUG": "perhaps"}, "REFLOAT_DEBUG='perhaps' is invalid"),
        ({"REFLOAT_TLS_CA": "nowhere.pem"}, "REFLOAT_TLS_CA=nowhere.pem cannot be read"),
        ({"DATABASE_URL": "oops"}, "DATABASE_URL is invalid"),
    ],
)
def test_wrong_settings_are_one_line(tmp_path: Path, env: dict[str, str], message: str) -> None:
    """The line names what is wrong, no traceback, exit code 2."""
    ended = _console(tmp_path, **env)

    assert ended.returncode == 2
    assert ended.stderr.startswith("refloat: ")
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert valkey.running_url(tmp_path / "valkey") is None


def test_redis_that_does_not_answer(
    console: Callable[..., tuple[object, str]], settings: Settings, tmp_path: Path
) -> None:
    """The one line names the setting, and no Valkey is started instead."""
    settings.REDIS_URL_GIVEN = "redis://127.0.0.1:1/0"
    code, message = console("--port", str(valkey.free_port()))

    assert code == 2
    assert message.startswith("refloat: REDIS_URL=redis://127.0.0.1:1/0 does not answer")
    assert message.count("\n") == 1
    assert valkey.running_url(tmp_path / "valkey") is None


def test_port_that_cannot_be_had(console: Callable[..., tuple[object, str]], tmp_path: Path) -> None:
    """Two consoles on one port: the second says so before it starts anything; and a number that is no port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        in_use = console("--port", port)

    assert in_use[0] == 2
    assert in_use[1].startswith(f"refloat: cannot listen on 127.0.0.1:{port}")
    none = console("--port", "70000")
    assert none[0] == 2
    assert none[1].startswith("refloat: ")
    assert "70000" in none[1]
    assert valkey.running_url(tmp_path / "valkey") is None


def test_unknown_flag_is_refused(console: Callable[..., tuple[object, str]]) -> None:
    """Argparse's own line, exit code 2."""
    code, message = console("--prot", "8000")

    assert code == 2
    assert "unrecognized arguments: --prot" in message
