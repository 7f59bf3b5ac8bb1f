"""`manage.py console` from outside: a failed start is one line with exit code 2 and leaves no process running."""

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


def _run_console_program(home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("REFLOAT_", "REDIS_"))
    }
    return subprocess.run(
        [sys.executable, "manage.py", "console"],
        cwd=ROOT,
        env={**environment, "REFLOAT_HOME": str(home), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def run_console(
    tmp_path: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[object, str]]:
    """Return a function that runs the command in this process and returns its exit code and stderr."""
    settings.REFLOAT_HOME = tmp_path

    def run(*args: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as caught:
            execute_from_command_line(["manage.py", "console", *args])
        return caught.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"REFLOAT_DEBUG": "perhaps"}, "REFLOAT_DEBUG='perhaps' is invalid"),
        ({"REFLOAT_TLS_CA": "nowhere.pem"}, "REFLOAT_TLS_CA=nowhere.pem cannot be read"),
        ({"DATABASE_URL": "oops"}, "DATABASE_URL is invalid"),
    ],
)
def test_invalid_setting_is_reported_in_one_line(tmp_path: Path, env: dict[str, str], message: str) -> None:
    """The line names the setting, there is no traceback, and the exit code is 2."""
    process = _run_console_program(tmp_path, **env)

    assert process.returncode == 2
    assert process.stderr.startswith("refloat: ")
    assert message in process.stderr
    assert process.stderr.count("\n") == 1
    assert valkey.running_url(tmp_path / "valkey") is None


def test_unreachable_redis_stops_the_start(
    run_console: Callable[..., tuple[object, str]], settings: Settings, tmp_path: Path
) -> None:
    """The line names the setting, and no Valkey is started instead."""
    settings.CONFIGURED_REDIS_URL = "redis://127.0.0.1:1/0"
    code, message = run_console("--port", str(valkey.find_free_port()))

    assert code == 2
    assert message.startswith("refloat: Redis at redis://127.0.0.1:1/0 does not respond")
    assert message.count("\n") == 1
    assert valkey.running_url(tmp_path / "valkey") is None


def test_port_in_use_or_invalid_stops_the_start(
    run_console: Callable[..., tuple[object, str]], tmp_path: Path
) -> None:
    """The error comes before any program starts."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        in_use_outcome = run_console("--port", port)

    assert in_use_outcome[0] == 2
    assert in_use_outcome[1].startswith(f"refloat: cannot listen on 127.0.0.1:{port}")
    invalid_outcome = run_console("--port", "70000")
    assert invalid_outcome[0] == 2
    assert invalid_outcome[1].startswith("refloat: ")
    assert "70000" in invalid_outcome[1]
    assert valkey.running_url(tmp_path / "valkey") is None


def test_unknown_flag_is_a_usage_error(run_console: Callable[..., tuple[object, str]]) -> None:
    """The message is argparse's, and the exit code is 2."""
    code, message = run_console("--prot", "8000")

    assert code == 2
    assert "unrecognized arguments: --prot" in message
