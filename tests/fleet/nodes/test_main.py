"""Nodes as programs: the ready line, a frozen proxy, an orderly end, and wrong flags."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.processes import children
from tests.fakes.waiting import eventually_sync


class Programs:
    """Nodes started as programs, and ended with the test."""

    def __init__(self, valkey_url: str, prefix: str) -> None:
        self._common = ("--backend", valkey_url, "--backend-prefix", prefix)
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: str) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleet.nodes", *argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.started.append(process)
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        assert line["event"] == "ready"
        return process, line

    def instance(self, role: str, name: str) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
        process, line = self.start(role, "--name", name, "--announce-ttl", "2s", *self._common)
        assert (line["role"], line["name"]) == (role, name)
        return process, line


@pytest.fixture
def programs(valkey_url: str, prefix: str) -> Iterator[Programs]:
    made = Programs(valkey_url, prefix)
    yield made
    children.stop(made.started, grace=30)
    for process in made.started:
        assert process.stdout is not None
        process.stdout.close()


def tunnels(line: dict[str, Any]) -> float:
    with urllib.request.urlopen(f"http://{line['diag']}/metrics", timeout=60) as answer:
        metrics = answer.read().decode()
    return next(
        float(found.split()[-1])
        for found in metrics.splitlines()
        if found.startswith("teleport_reverse_tunnels_connected{")
    )


def test_fleet_of_programs_and_a_frozen_proxy(programs: Programs) -> None:
    """SIGSTOP on one proxy: its agents tunnel elsewhere by the discovery TTL. SIGTERM: all end cleanly."""
    auth, auth_line = programs.instance("auth", "auth-1")
    first, first_line = programs.instance("proxy", "proxy-1")
    second, second_line = programs.instance("proxy", "proxy-2")
    agents, _ = programs.start(
        *("agent", "--count", "6", "--connections", "1", "--announce-ttl", "4s", "--auth", auth_line["grpc"]),
        *("--proxy", f"{first_line['grpc']},{second_line['grpc']}", "--keep-alive-interval", "500ms"),
    )
    eventually_sync(lambda: tunnels(first_line) + tunnels(second_line) == 6)
    first.send_signal(signal.SIGSTOP)
    eventually_sync(lambda: tunnels(second_line) == 6)
    first.send_signal(signal.SIGCONT)
    eventually_sync(lambda: tunnels(first_line) == 0)
    for process in (agents, second, first, auth):
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("auth",), "Missing option '--name'."),
        (
            ("proxy", "--name", "x", "--backend", "redis://127.0.0.1:1/0", "--listen", "nonsense"),
            "'nonsense' is not host:port",
        ),
        (("auth", "--name", "x", "--backend", "redis://127.0.0.1:1/0"), "is --backend right"),
        (("agent", "--auth", "a:1", "--proxy", "b:1", "--mesh", "--connections", "1"), "exclude each other"),
        (("auth", "--name", "x", "--backend", "http://x"), "--backend 'http://x'"),
    ],
)
def test_wrong_flags(argv: tuple[str, ...], says: str) -> None:
    """One line on stderr that says what, and exit code 2."""
    done = subprocess.run(
        [sys.executable, "-m", "fleet.nodes", *argv], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("role", ["auth", "proxy", "agent"])
@pytest.mark.parametrize("wrong", ["--listen", "--diag-listen", "key"])
def test_port_in_use_and_key_that_is_none(
    role: str, wrong: str, valkey_url: str, prefix: str, tmp_path: Path
) -> None:
    """One line that names it, exit code 2, and nothing is left running."""
    if (role, wrong) == ("agent", "--listen"):
        wrong = "--diag-listen"  # an agent listens nowhere else
    argv = [sys.executable, "-m", "fleet.nodes", role]
    if role == "agent":
        argv += ["--auth", "127.0.0.1:1", "--proxy", "127.0.0.1:2"]
    else:
        argv += ["--name", "x", "--backend", valkey_url, "--backend-prefix", prefix]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = f"127.0.0.1:{taken.getsockname()[1]}"
        if wrong == "key":
            (tmp_path / "key.pem").write_text("no key at all")
            for flag in ("cert", "key", "ca"):
                argv += [f"--tls-{flag}", str(tmp_path / "key.pem")]
        else:
            argv += [wrong, port]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert ("key.pem" if wrong == "key" else port) in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    ("role", "variable", "value"),
    [
        ("auth", "TELEPORT_UNSTABLE_GRPC_CLIENT_LB_POLICY", "{"),
        ("auth", "TELEPORT_UNSTABLE_AUTH_ANNOUNCE_TTL", "soon"),
        ("proxy", "TELEPORT_UNSTABLE_PROXYGROUP_GEN", "-1"),
    ],
)
def test_wrong_environment(role: str, variable: str, value: str) -> None:
    """A variable that does not parse is named."""
    argv = [sys.executable, "-m", "fleet.nodes", role, "--name", "x", "--backend", "redis://127.0.0.1:1/0"]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, env={**os.environ, variable: value}
    )
    assert done.returncode == 2
    assert variable in done.stderr
    assert done.stderr.count("\n") == 1
