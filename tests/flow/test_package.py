"""The wheel, in an empty environment outside the checkout: the demo and the console serve their pages."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleet.processes import children
from fleet.processes.valkey import find_free_port
from tests.fakes.waiting import eventually_sync
from tests.meta.house import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_UV = [sys.executable, "-m", "uv"]
_PATIENCE = 180.0


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the source archive, so that both are complete."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([*_UV, "build", "--quiet", "--out-dir", str(folder), str(ROOT)], check=True, timeout=300)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module", params=["unpinned", "pinned"])
def environment(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The `bin` folder of an environment with nothing but the wheel and what it needs."""
    folder = tmp_path_factory.mktemp(request.param)
    constraints = ["--constraints", str(ROOT / "constraints.txt")] if request.param == "pinned" else []
    subprocess.run(
        [*_UV, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True, timeout=120
    )
    subprocess.run(
        [*_UV, "pip", "install", "--quiet", "--python", str(folder / "bin/python"), *constraints, str(wheel)],
        check=True,
        timeout=600,
    )
    return folder / "bin"


def _environment_of(environment: Path, home: Path) -> dict[str, str]:
    environment_variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("REFLOAT", "PYTHON", "DJANGO"))
    }
    return environment_variables | {
        "XDG_DATA_HOME": str(home),
        "PATH": f"{environment}{os.pathsep}{os.environ['PATH']}",
    }


@contextmanager
def _run_refloat(environment: Path, home: Path, *arguments: str) -> Iterator[Path]:
    """Run `refloat` in a folder without code; yield its output."""
    env = _environment_of(environment, home)
    home.mkdir(exist_ok=True)
    with (home / "output").open("wb") as output:
        process = children.spawn(
            [str(environment / "refloat"), *arguments], env=env, log=output, cwd=str(home)
        )
    try:
        yield home / "output"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def _read(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return str(response.read().decode())
    except OSError:
        return ""


def test_demo_serves_its_page_outside_a_checkout(environment: Path, tmp_path: Path) -> None:
    """With its state in the data folder of the user."""
    state = tmp_path / "data" / "refloat"
    with _run_refloat(
        environment, tmp_path / "data", "demo", "--port", str(find_free_port()), "--agents", "20"
    ):
        eventually_sync(lambda: (state / "demo.json").exists(), seconds=_PATIENCE)
        demo = json.loads((state / "demo.json").read_text())
        eventually_sync(lambda: "<title>" in _read(f"{demo['url']}accounts/login/"), seconds=_PATIENCE)
        sign_in = _read(f"{demo['url']}accounts/login/")
        styles = re.findall(r'href="(/static/[^"]+\.css)"', sign_in)
        assert styles
        assert all(_read(demo["url"].rstrip("/") + style) for style in styles)
        headers = {"Authorization": f"Bearer {demo['token']}"}
        request = urllib.request.Request(f"{demo['url']}api/v1/fleet/summary", headers=headers)

        def are_healthy() -> bool:
            with urllib.request.urlopen(request, timeout=5) as response:
                return bool(json.loads(response.read())["counts"].get("healthy") == 20)

        eventually_sync(are_healthy, seconds=_PATIENCE)


@pytest.mark.parametrize("environment", ["pinned"], indirect=True)
def test_console_serves_its_page_outside_a_checkout(environment: Path, tmp_path: Path) -> None:
    """Without a fleet. The newest packages run all of its programs in the demo above."""
    port = find_free_port()
    with _run_refloat(environment, tmp_path / "data", "serve", "--port", str(port)) as output:
        eventually_sync(
            lambda: "<title>" in _read(f"http://127.0.0.1:{port}/accounts/login/"), seconds=_PATIENCE
        )
        assert f"serving http://127.0.0.1:{port}/" in output.read_text()
        eventually_sync(lambda: "/setup/" in output.read_text(), seconds=_PATIENCE)
        link = re.search(r"http://\S+/setup/\S+/", output.read_text())
        assert link is not None
        assert "Create the first administrator" in _read(link[0])
        _check_commands(environment, tmp_path / "data")
    assert (tmp_path / "data" / "refloat" / "refloat.sqlite3").exists()


def _check_commands(environment: Path, home: Path) -> None:
    """Run the commands of the machine: users, tokens, doctor, backup."""
    steps = [
        (["user", "create", "ada", "--role", "admin", "--password-stdin"], "correct horse battery"),
        (["token", "create", "ada", "--name", "prometheus", "--scope", "view_metrics"], ""),
        (["doctor"], ""),
        (["backup", "--to", str(home / "backup.tar.gz")], ""),
    ]
    for arguments, text in steps:
        process = subprocess.run(
            [str(environment / "refloat"), *arguments],
            input=text,
            env=_environment_of(environment, home),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        assert process.returncode == 0, f"{arguments}: {process.stdout}{process.stderr}"


def test_wheel_runs_without_being_installed(wheel: Path) -> None:
    """By `uvx`, in an environment that is thrown away."""
    process = subprocess.run(
        [
            *_UV,
            "tool",
            "run",
            "--quiet",
            "--python",
            sys.executable,
            "--from",
            str(wheel),
            "refloat",
            "--version",
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert re.fullmatch(r"refloat, version \S+\n", process.stdout), process
