"""scp through a tunnel that its agent closes gracefully: OpenSSH at both ends, and every byte arrives.

The agent has a tunnel to each of two proxies and needs one. Two transfers, one in each direction, ride the first
tunnel, three idle connections the second, so RFD 226's rule closes the first: that of the fewest users.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes import openssh
from tests.fakes.openssh import Sshd
from tests.fakes.programs import skip_without
from tests.fakes.waiting import eventually_sync
from tests.flow.local_fleet import PATIENCE, Fleet, run_fleet
from tests.flow.transfers import service, transfer
from tests.meta.house import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: A transfer takes 16 s at this rate; the closing comes within a few.
_SIZE = 64 << 20
_KILOBITS_PER_SECOND = 8 * 4_000
#: A transfer that got here waits for the closing: on no machine is it over before.
_HOLD_AT = _SIZE // 2
_SHAPE = ("--auths", "1", "--proxies", "2", "--agents", "1", "--connections", "2")
#: The wait of a surplus tunnel, which is 30 to 60 minutes by default.
_WAIT = ("--networking", "tunnel_closing_wait_min=1s", "--networking", "tunnel_closing_wait_max=2s")


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    """The server behind the agent."""
    skip_without(openssh.missing_reason())
    with openssh.sshd(tmp_path) as server:
        yield server


@pytest.fixture
def fleet(tmp_path: Path, sshd: Sshd) -> Iterator[Fleet]:
    """A fleet of one agent that has both its tunnels."""
    home = tmp_path / "home"
    home.mkdir()
    with service() as target_service:
        services = ("--service", f"ssh={sshd.address}", "--service", f"check={target_service.address}")
        with run_fleet(home, *_SHAPE, *_WAIT, *services) as started_fleet:
            eventually_sync(
                lambda: [_tunnels(proxy) for proxy in started_fleet.proxies] == [1, 1], seconds=PATIENCE
            )
            yield started_fleet


def _tunnels(proxy: str) -> int:
    with grpc.insecure_channel(proxy) as channel:
        feed = fleet_pb2_grpc.TunnelFeedStub(channel)
        return len(feed.ListTunnels(fleet_pb2.ListTunnelsRequest(), timeout=PATIENCE).tunnels)


@dataclass
class Transfer:
    """An scp that runs, and the file that it writes."""

    process: subprocess.Popen[bytes]
    target: Path

    def size(self) -> int:
        """Return how much of the file is written."""
        return self.target.stat().st_size if self.target.exists() else 0

    def hold_before_its_end(self) -> None:
        """Stop the process once half of the file is written."""
        if self.size() >= _HOLD_AT:
            self.process.send_signal(signal.SIGSTOP)

    def end(self) -> None:
        """Let the process go on, and wait for its end."""
        self.process.send_signal(signal.SIGCONT)
        assert self.process.wait(PATIENCE) == 0


@contextlib.contextmanager
def _start_copy(fleet: Fleet, sshd: Sshd, source: str, target: str, target_file: Path) -> Iterator[Transfer]:
    """Run scp through the first proxy."""
    command = " ".join(fleet.refloat_argv("connect", "ssh.agent-1", "--proxy", fleet.connect))
    argv = sshd.scp("-l", str(_KILOBITS_PER_SECOND), source, target, proxy_command=command)
    with subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            yield Transfer(process, target_file)
        finally:
            process.kill()


def test_scp_across_graceful_closing(fleet: Fleet, sshd: Sshd, tmp_path: Path) -> None:
    """Both transfers have begun when the closing begins, end after it, and their files are equal to the sources."""
    source = tmp_path / "source"
    source.write_bytes(os.urandom(_SIZE))
    uploaded, downloaded = tmp_path / "uploaded", tmp_path / "downloaded"
    with contextlib.ExitStack() as stack:
        idle = _idle_connections(fleet, stack, count=3)
        up_and_down = [
            stack.enter_context(_start_copy(fleet, sshd, *settings))
            for settings in (
                (str(source), f"{sshd.host}:{uploaded}", uploaded),
                (f"{sshd.host}:{source}", str(downloaded), downloaded),
            )
        ]
        eventually_sync(lambda: all(copy.size() > 0 for copy in up_and_down), seconds=PATIENCE)
        assert _match_closing_line(fleet) is None

        config_change = fleet.run(
            "fleet", "config", "set", "--confirm", "agent_connection_count=1", "graceful_tunnel_closing=true"
        )
        assert config_change.returncode == 0, config_change.stderr
        _await_closing(fleet, up_and_down)
        sizes = [copy.size() for copy in up_and_down]
        assert all(0 < size < _SIZE for size in sizes), sizes
        assert not _has_closed_line(fleet)

        for copy in up_and_down:
            copy.end()
        eventually_sync(lambda: _has_closed_line(fleet), seconds=PATIENCE)
        for sock in idle:
            transfer(sock, 1000)
    assert {_digest(path) for path in (uploaded, downloaded)} == {_digest(source)}


def _idle_connections(fleet: Fleet, stack: contextlib.ExitStack, *, count: int) -> list[socket.socket]:
    """Open connections through the second proxy, over its own tunnel."""
    return [
        stack.enter_context(fleet.open_connection("check.agent-1", fleet.connects[1])) for _ in range(count)
    ]


def _await_closing(fleet: Fleet, transfers: Sequence[Transfer]) -> None:
    """Wait until the agent closes the tunnel of both transfers, and let no transfer end before."""

    def has_begun() -> bool:
        for copy in transfers:
            copy.hold_before_its_end()
        return _match_closing_line(fleet) is not None

    eventually_sync(has_begun, seconds=PATIENCE)
    line = _match_closing_line(fleet)
    assert line is not None
    assert (line["reason"], line["sessions"]) == ("excess", "2"), line[0]


def _log(fleet: Fleet) -> str:
    return (fleet.home / "fleet" / "default" / "logs" / "agents-1.log").read_text()


def _match_closing_line(fleet: Fleet) -> re.Match[str] | None:
    """Return the line of the agent's log on the tunnel that takes nobody new from now on."""
    pattern = r"tunnel\.closing: agent-1: proxy \S+: (?P<reason>\w+), (?P<sessions>\d+) open sessions"
    return re.search(pattern, _log(fleet))


def _has_closed_line(fleet: Fleet) -> bool:
    return "tunnel.closed: agent-1" in _log(fleet)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
