"""The forwarder as a program: its flags, its ready line and its control API."""

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
from fleet.processes.supervisor import Supervisor, has_ready_line

ARGV = [sys.executable, "-m", "fleet.nodes", "forwarder"]
TOKEN = "let-me"


@pytest.fixture(scope="module")
def forwarder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Any]]:
    """Yield the ready line of a forwarder; one test changes a forward that no other test uses."""
    with Supervisor(tmp_path_factory.mktemp("logs")) as supervisor:
        child = supervisor.start(
            "forwarder",
            [*ARGV, "--forward", "p/grpc=127.0.0.1:0,-", "--forward", "p/diag=127.0.0.1:0,127.0.0.1:9"],
            env={**os.environ, "REFLOAT_FORWARDER_TOKEN": TOKEN},
            readiness_probe=has_ready_line,
        )
        supervisor.await_ready(timeout=60)
        yield child.ready_message


@pytest.fixture
async def control(
    forwarder: Mapping[str, Any],
) -> AsyncIterator[tuple[aiohttp.ClientSession, dict[str, str]]]:
    """Yield a session with the control API, and the forwarder's ports by name."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(f"http://{forwarder['control']}", headers=headers) as session:
        yield session, dict(forwarder["forwards"])


async def test_control_api_lists_and_changes_forwards(
    control: tuple[aiohttp.ClientSession, dict[str, str]],
) -> None:
    """A forward is changed by name, the list shows the change, and a cut port refuses connections."""
    session, ports = control
    async with session.get("/forwards") as response:
        forwards = {entry["name"]: entry for entry in (await response.json())["forwards"]}
    assert forwards["p/grpc"]["target_address"] is None
    assert forwards["p/diag"] == {
        "name": "p/diag",
        "listen": ports["p/diag"],
        "target_address": "127.0.0.1:9",
        "mode": "pass",
        "connections": 0,
        "accepted": 0,
    }
    async with session.post(
        "/forwards/p/grpc", json={"mode": "cut", "target_address": "127.0.0.1:9"}
    ) as response:
        forward = await response.json()
    assert (forward["mode"], forward["target_address"]) == ("cut", "127.0.0.1:9")
    with socket.socket() as client:
        host, _, port = ports["p/grpc"].rpartition(":")
        assert client.connect_ex((host, int(port))) != 0


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/forwards/none", {"mode": "cut"}, 404, "forwards: p/grpc, p/diag"),
        ("/forwards/p/grpc", {"mode": "burn"}, 400, "pass, hold, cut"),
        ("/forwards/p/grpc", {"target_address": "nowhere"}, 400, "'nowhere' is not host:port"),
        ("/forwards/p/grpc", {}, 400, "expected"),
    ],
)
async def test_control_api_explains_invalid_requests(
    control: tuple[aiohttp.ClientSession, dict[str, str]],
    path: str,
    body: dict[str, str],
    status: int,
    message: str,
) -> None:
    """The error lists the allowed values."""
    session, _ = control
    async with session.post(path, json=body) as response:
        assert response.status == status
        assert message in (await response.json())["error"]


async def test_control_api_refuses_wrong_token(
    control: tuple[aiohttp.ClientSession, dict[str, str]],
) -> None:
    """Only the owner of the fleet may inject faults."""
    session, _ = control
    async with session.get("/forwards", headers={"Authorization": "Bearer other"}) as response:
        assert response.status == 401


def test_invalid_flag_or_port_in_use_ends_with_code_2() -> None:
    """Stderr has one line without a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = subprocess.run(
            [*ARGV, "--forward", f"x=127.0.0.1:{port},127.0.0.1:9"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert process.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port}" in process.stderr
    assert len(process.stderr.strip().splitlines()) == 1
    invocation = CliRunner().invoke(command, ["--forward", "x"])
    assert invocation.exit_code == 2
    assert "'x' is not NAME=LISTEN_HOST:PORT,TO_HOST:PORT" in invocation.output


def test_flag_has_a_target_or_none() -> None:
    """The flag is NAME=LISTEN,TARGET or NAME=LISTEN,-."""
    assert parse_flag("a=127.0.0.1:0,127.0.0.1:5") == ForwardSpec("a", ("127.0.0.1", 0), ("127.0.0.1", 5))
    assert parse_flag("a=127.0.0.1:0,-") == ForwardSpec("a", ("127.0.0.1", 0), None)


def test_forwards_file_is_parsed_or_refused(tmp_path: Path) -> None:
    """A file with another format raises ValueError."""
    file = tmp_path / "forwards.json"
    file.write_text(
        json.dumps({"a": {"listen": "127.0.0.1:0", "target_address": "127.0.0.1:5"}, "b": {"listen": "h:1"}})
    )
    assert [spec.name for spec in parse_file(file)] == ["a", "b"]
    for text in ("[]", '{"a": 5}', '{"a": {}}', "no json"):
        file.write_text(text)
        with pytest.raises(ValueError):  # noqa: PT011 - the message is json's or the parser's
            parse_file(file)
