"""The forwarder as the program it is: its flags, its ready line, its control API."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from fleet.nodes.local.forwarder import ForwardSpec, command, parse_file, parse_flag
from fleet.processes.supervisor import Supervisor, is_json_ready

ARGV = [sys.executable, "-m", "fleet.nodes", "forwarder"]
TOKEN = "let-me"


@pytest.fixture(scope="module")
def forwarder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    """The ready line of a forwarder; one test changes it, and nothing the others look at."""
    with Supervisor(tmp_path_factory.mktemp("logs")) as supervisor:
        child = supervisor.start(
            "forwarder",
            [*ARGV, "--forward", "p/grpc=127.0.0.1:0,-", "--forward", "p/diag=127.0.0.1:0,127.0.0.1:9"],
            env={**os.environ, "REFLOAT_FORWARDER_TOKEN": TOKEN},
            ready=is_json_ready,
        )
        supervisor.await_ready(timeout=60)
        yield child.ready_message


@pytest.fixture
async def control(
    forwarder: Mapping[str, Any],
) -> AsyncIterator[tuple[aiohttp.ClientSession, dict[str, str]]]:
    """A session on the control API, and the forwarder's ports by name."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(f"http://{forwarder['control']}", headers=headers) as session:
        yield session, dict(forwarder["forwards"])


async def test_control_lists_and_changes_forwards(
    control: tuple[aiohttp.ClientSession, dict[str, str]],
) -> None:
    """A mode is set by name; the list shows it; a cut port refuses at once."""
    session, ports = control
    async with session.get("/forwards") as response:
        listed = {one["name"]: one for one in (await response.json())["forwards"]}
    assert listed["p/grpc"]["to"] is None
    assert listed["p/diag"] == {
        "name": "p/diag",
        "listen": ports["p/diag"],
        "to": "127.0.0.1:9",
        "mode": "pass",
        "connections": 0,
        "accepted": 0,
    }
    async with session.post("/forwards/p/grpc", json={"mode": "cut", "to": "127.0.0.1:9"}) as response:
        changed = await response.json()
    assert (changed["mode"], changed["to"]) == ("cut", "127.0.0.1:9")
    with socket.socket() as client:
        host, _, port = ports["p/grpc"].rpartition(":")
        assert client.connect_ex((host, int(port))) != 0


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/forwards/none", {"mode": "cut"}, 404, "forwards: p/grpc, p/diag"),
        ("/forwards/p/grpc", {"mode": "burn"}, 400, "pass, hold, cut"),
        ("/forwards/p/grpc", {"to": "nowhere"}, 400, "'nowhere' is not host:port"),
        ("/forwards/p/grpc", {}, 400, "expected"),
    ],
)
async def test_control_wrong_request_is_a_sentence(
    control: tuple[aiohttp.ClientSession, dict[str, str]],
    path: str,
    body: dict[str, str],
    status: int,
    says: str,
) -> None:
    """What is wrong, and what would be right."""
    session, _ = control
    async with session.post(path, json=body) as response:
        assert response.status == status
        assert says in (await response.json())["error"]


async def test_control_without_the_token_is_refused(
    control: tuple[aiohttp.ClientSession, dict[str, str]],
) -> None:
    """Faults are for who owns the fleet."""
    session, _ = control
    async with session.get("/forwards", headers={"Authorization": "Bearer other"}) as response:
        assert response.status == 401


def test_flags_wrong_or_port_taken_is_one_line_and_code_2() -> None:
    """No traceback for a mistake of the operator."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [*ARGV, "--forward", f"x=127.0.0.1:{port},127.0.0.1:9"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ended.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    refused = CliRunner().invoke(command, ["--forward", "x"])
    assert refused.exit_code == 2
    assert "'x' is not NAME=LISTEN_HOST:PORT,TO_HOST:PORT" in refused.output


def test_parse_flag_reads_a_target_or_none() -> None:
    """The flag's spelling."""
    assert parse_flag("a=127.0.0.1:0,127.0.0.1:5") == ForwardSpec("a", ("127.0.0.1", 0), ("127.0.0.1", 5))
    assert parse_flag("a=127.0.0.1:0,-") == ForwardSpec("a", ("127.0.0.1", 0), None)


def test_parse_file_reads_all_or_says_how_it_looks(tmp_path: Path) -> None:
    """The file's spelling, and a sentence for any other."""
    file = tmp_path / "forwards.json"
    file.write_text(json.dumps({"a": {"listen": "127.0.0.1:0", "to": "127.0.0.1:5"}, "b": {"listen": "h:1"}}))
    assert [spec.name for spec in parse_file(file)] == ["a", "b"]
    for wrong in ("[]", '{"a": 5}', '{"a": {}}', "no json"):
        file.write_text(wrong)
        with pytest.raises(ValueError):  # noqa: PT011 - json's own words, or ours
            parse_file(file)
