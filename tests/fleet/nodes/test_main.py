"""Nodes as programs: the ready line, a frozen proxy, an orderly end, and wrong flags."""

from __future__ import annotations

import gc
import itertools
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet.nodes import __main__ as program
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


def metric(line: dict[str, Any], name: str) -> float:
    """Add up the samples of a metric that a program shows now."""
    with urllib.request.urlopen(f"http://{line['diag']}/metrics", timeout=60) as answer:
        metrics = answer.read().decode()
    return sum(float(sample.split()[-1]) for sample in metrics.splitlines() if sample.startswith(f"{name}{{"))


def tunnels(line: dict[str, Any]) -> float:
    return metric(line, "teleport_reverse_tunnels_connected")


def test_fleet_of_programs_and_a_frozen_proxy(programs: Programs) -> None:
    """SIGSTOP on one proxy: its agents tunnel elsewhere by the discovery TTL. SIGTERM: all end cleanly."""
    auth, auth_line = programs.instance("auth", "auth-1")
    first, first_line = programs.instance("proxy", "proxy-1")
    second, second_line = programs.instance("proxy", "proxy-2")
    agents, agents_line = programs.start(
        *("agent", "--count", "6", "--connections", "1", "--announce-ttl", "4s", "--auth", auth_line["grpc"]),
        *("--diag-listen", "127.0.0.1:0"),
        *("--proxy", f"{first_line['grpc']},{second_line['grpc']}", "--keep-alive-interval", "500ms"),
    )
    eventually_sync(lambda: tunnels(first_line) + tunnels(second_line) == 6)
    left = tunnels(first_line)
    first.send_signal(signal.SIGSTOP)
    eventually_sync(lambda: tunnels(second_line) == 6)
    # Agents may have a tunnel elsewhere before they give up the old one, which a proxy that is back sooner keeps.
    eventually_sync(lambda: metric(agents_line, "refloat_agent_tunnels_closed_total") >= left)
    first.send_signal(signal.SIGCONT)
    eventually_sync(lambda: tunnels(first_line) == 0)
    for process in (agents, second, first, auth):
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command line ended."""

    code: int | str | None
    stdout: str
    stderr: str


Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs a command line to its end in this process: loading a node takes longer than refusing its flags.

    Output is that of the file descriptors, which gRPC's core writes to as well.
    """
    thresholds = gc.get_threshold()

    def once(*argv: str, **environment: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["fleet.nodes", *argv])
        monkeypatch.setenv("GRPC_VERBOSITY", "NONE")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        try:
            code: int | str | None = program.run()
        except SystemExit as ended:
            code = ended.code
        return Ended(code, *capfd.readouterr())

    yield once
    # A node keeps what it has loaded from the garbage collector, for as long as its process lives.
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_port_in_use_of_a_program() -> None:
    """One line on stderr that names it, none of gRPC's core beside it, and exit code 2; nothing is left running."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = f"127.0.0.1:{taken.getsockname()[1]}"
        agent = ("agent", "--auth", "127.0.0.1:1", "--proxy", "127.0.0.1:2", "--diag-listen", port)
        auth = ("auth", "--name", "x", "--backend", "redis://127.0.0.1:1/0", "--listen", port)
        for argv in (agent, auth):
            done = subprocess.run(
                [sys.executable, "-m", "fleet.nodes", *argv], capture_output=True, text=True, timeout=60
            )
            assert (done.returncode, done.stdout) == (2, "")
            assert port in done.stderr
            assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("auth",), "Missing option '--name'."),
        (
            ("proxy", "--name", "x", "--backend", "redis://127.0.0.1:1/0", "--listen", "nonsense"),
            "'nonsense' is not host:port",
        ),
        (("auth", "--name", "x", "--backend", "redis://127.0.0.1:1/0"), "check that --backend is right"),
        (
            ("agent", "--auth", "a:1", "--proxy", "b:1", "--mesh", "--connections", "1"),
            "cannot be used together",
        ),
        (
            ("agent", "--auth-via", "proxy", "--proxy", "b:1", "--tunnel-wire", "0.1"),
            "--auth-via proxy needs --tunnel-wire 0.2",
        ),
        (("auth", "--name", "x", "--backend", "http://x"), "--backend 'http://x'"),
    ],
)
def test_wrong_flags(run: Run, argv: tuple[str, ...], says: str) -> None:
    """One line on stderr that says what, and exit code 2."""
    done = run(*argv)
    assert (done.code, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("role", "wrong"),
    [
        *itertools.product(("auth", "proxy"), ("--listen", "--diag-listen", "key")),
        ("agent", "key"),
    ],
)
def test_port_in_use_and_key_that_is_none(
    run: Run, role: str, wrong: str, valkey_url: str, prefix: str, tmp_path: Path
) -> None:
    """One line that names it, exit code 2."""
    argv = [role]
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
        done = run(*argv)
    assert (done.code, done.stdout) == (2, ""), done.stderr
    # gRPC's core adds a line of its own where somebody else in this process has loaded it.
    (ours,) = [line for line in done.stderr.splitlines() if "add_port.cc" not in line]
    assert ("key.pem" if wrong == "key" else port) in ours


@pytest.mark.parametrize(
    ("role", "variable", "value"),
    [
        ("auth", "TELEPORT_UNSTABLE_GRPC_CLIENT_LB_POLICY", "{"),
        ("auth", "TELEPORT_UNSTABLE_AUTH_ANNOUNCE_TTL", "soon"),
        ("proxy", "TELEPORT_UNSTABLE_PROXYGROUP_GEN", "-1"),
    ],
)
def test_wrong_environment(run: Run, role: str, variable: str, value: str) -> None:
    """A variable that does not parse is named."""
    done = run(role, "--name", "x", "--backend", "redis://127.0.0.1:1/0", **{variable: value})
    assert done.code == 2
    assert variable in done.stderr
    assert done.stderr.count("\n") == 1
