"""Programs of `fleet.nodes`: the ready line, a frozen proxy, an orderly shutdown and wrong flags."""

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
    """Start programs of `fleet.nodes` that end with the test."""

    def __init__(self, valkey_url: str, prefix: str) -> None:
        self._common = ("--backend", valkey_url, "--backend-prefix", prefix)
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *argv: str) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleet.nodes", *argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.processes.append(process)
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
    started_programs = Programs(valkey_url, prefix)
    yield started_programs
    children.stop(started_programs.processes, grace=30)
    for process in started_programs.processes:
        assert process.stdout is not None
        process.stdout.close()


def read_metric(line: dict[str, Any], name: str) -> float:
    """Return the sum of the current samples of a program's metric."""
    with urllib.request.urlopen(f"http://{line['diag']}/metrics", timeout=60) as response:
        metrics = response.read().decode()
    return sum(float(sample.split()[-1]) for sample in metrics.splitlines() if sample.startswith(f"{name}{{"))


def count_tunnels(line: dict[str, Any]) -> float:
    return read_metric(line, "teleport_reverse_tunnels_connected")


def test_frozen_proxy_loses_its_agents_and_all_programs_end_cleanly(programs: Programs) -> None:
    """Agents leave the stopped proxy within the discovery TTL; after SIGTERM every program exits with 0."""
    auth, auth_line = programs.instance("auth", "auth-1")
    first, first_line = programs.instance("proxy", "proxy-1")
    second, second_line = programs.instance("proxy", "proxy-2")
    agents, agents_line = programs.start(
        *("agent", "--count", "6", "--connections", "1", "--announce-ttl", "4s", "--auth", auth_line["grpc"]),
        *("--diag-listen", "127.0.0.1:0"),
        *("--proxy", f"{first_line['grpc']},{second_line['grpc']}", "--keep-alive-interval", "500ms"),
    )
    eventually_sync(lambda: count_tunnels(first_line) + count_tunnels(second_line) == 6)
    first_tunnel_count = count_tunnels(first_line)
    first.send_signal(signal.SIGSTOP)
    eventually_sync(lambda: count_tunnels(second_line) == 6)
    # Agents may have a new tunnel before they close the old tunnel, which a proxy that is resumed earlier would keep.
    eventually_sync(
        lambda: read_metric(agents_line, "refloat_agent_tunnels_closed_total") >= first_tunnel_count
    )
    first.send_signal(signal.SIGCONT)
    eventually_sync(lambda: count_tunnels(first_line) == 0)
    for process in (agents, second, first, auth):
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """The exit code and the output of a command line."""

    code: int | str | None
    stdout: str
    stderr: str


RunCommand = Callable[..., CommandOutcome]


@pytest.fixture
def run_command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[RunCommand]:
    """Yield a function that runs a command line in this process: a program takes longer to load than to refuse flags.

    The output is read from the file descriptors, because gRPC's core writes to them as well.
    """
    thresholds = gc.get_threshold()

    def run_in_process(*argv: str, **environment: str) -> CommandOutcome:
        monkeypatch.setattr(sys, "argv", ["fleet.nodes", *argv])
        monkeypatch.setenv("GRPC_VERBOSITY", "NONE")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        capfd.readouterr()
        try:
            code: int | str | None = program.run()
        except SystemExit as exit_error:
            code = exit_error.code
        return CommandOutcome(code, *capfd.readouterr())

    yield run_in_process
    # A program freezes the objects that it has loaded and raises the thresholds; later tests need the usual collector.
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_port_in_use_ends_program_with_one_line_on_stderr() -> None:
    """The line names the port, gRPC's core adds no line, the exit code is 2, and no process keeps running."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = f"127.0.0.1:{listener.getsockname()[1]}"
        agent = ("agent", "--auth", "127.0.0.1:1", "--proxy", "127.0.0.1:2", "--diag-listen", port)
        auth = ("auth", "--name", "x", "--backend", "redis://127.0.0.1:1/0", "--listen", port)
        for argv in (agent, auth):
            process = subprocess.run(
                [sys.executable, "-m", "fleet.nodes", *argv], capture_output=True, text=True, timeout=60
            )
            assert (process.returncode, process.stdout) == (2, "")
            assert port in process.stderr
            assert process.stderr.count("\n") == 1, process.stderr


@pytest.mark.parametrize(
    ("argv", "message"),
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
def test_wrong_flags_are_explained_in_one_line(
    run_command: RunCommand, argv: tuple[str, ...], message: str
) -> None:
    """Standard error has one line with the reason, and the exit code is 2."""
    outcome = run_command(*argv)
    assert (outcome.code, outcome.stdout) == (2, "")
    assert message in outcome.stderr
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("role", "problem"),
    [
        *itertools.product(("auth", "proxy"), ("--listen", "--diag-listen", "key")),
        ("agent", "key"),
    ],
)
def test_port_in_use_or_invalid_key_is_named_in_one_line(
    run_command: RunCommand, role: str, problem: str, valkey_url: str, prefix: str, tmp_path: Path
) -> None:
    """Stderr has one line with the port or the key file, and the exit code is 2."""
    argv = [role]
    if role == "agent":
        argv += ["--auth", "127.0.0.1:1", "--proxy", "127.0.0.1:2"]
    else:
        argv += ["--name", "x", "--backend", valkey_url, "--backend-prefix", prefix]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = f"127.0.0.1:{listener.getsockname()[1]}"
        if problem == "key":
            (tmp_path / "key.pem").write_text("no key at all")
            for flag in ("cert", "key", "ca"):
                argv += [f"--tls-{flag}", str(tmp_path / "key.pem")]
        else:
            argv += [problem, port]
        outcome = run_command(*argv)
    assert (outcome.code, outcome.stdout) == (2, ""), outcome.stderr
    # gRPC's core adds a line if another test of this process has loaded it.
    (stderr_line,) = [line for line in outcome.stderr.splitlines() if "add_port.cc" not in line]
    assert ("key.pem" if problem == "key" else port) in stderr_line


@pytest.mark.parametrize(
    ("role", "variable", "value"),
    [
        ("auth", "TELEPORT_UNSTABLE_GRPC_CLIENT_LB_POLICY", "{"),
        ("auth", "TELEPORT_UNSTABLE_AUTH_ANNOUNCE_TTL", "soon"),
        ("proxy", "TELEPORT_UNSTABLE_PROXYGROUP_GEN", "-1"),
    ],
)
def test_invalid_environment_variable_is_named(
    run_command: RunCommand, role: str, variable: str, value: str
) -> None:
    """Stderr has one line with the variable's name, and the exit code is 2."""
    outcome = run_command(role, "--name", "x", "--backend", "redis://127.0.0.1:1/0", **{variable: value})
    assert outcome.code == 2
    assert variable in outcome.stderr
    assert outcome.stderr.count("\n") == 1
