"""`refloat connect` as people run it; the whole way through a fleet is in tests/flow/test_connect.py."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleet.cli.main import main

TOKEN = "a-token-of-somebody"


def start_proxy(answer: bytes, request_heads: list[bytes]) -> tuple[int, threading.Thread]:
    """Start a proxy that responds to one connection with `answer` and then echoes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as sock:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += sock.recv(4096)
            request_heads.append(head)
            sock.sendall(answer)
            while part := sock.recv(4096):
                sock.sendall(part)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    port: int = listener.getsockname()[1]
    return port, thread


def run(port: int, *flags: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """The command, with something on standard input."""
    argv = [
        sys.executable,
        "-m",
        "fleet.cli",
        "connect",
        "--proxy",
        f"127.0.0.1:{port}",
        *flags,
        "web.agent-1",
    ]
    return subprocess.run(argv, input=b"hello", capture_output=True, timeout=60, env=env, check=False)


def test_standard_input_and_output_are_connected() -> None:
    """Until the end of the input; no token is sent by default."""
    request_heads: list[bytes] = []
    port, thread = start_proxy(b"HTTP/1.1 200 OK\r\n\r\nbanner ", request_heads)
    process = run(port)
    thread.join(timeout=60)
    assert (process.returncode, process.stdout) == (0, b"banner hello")
    assert request_heads[0].startswith(b"CONNECT web.agent-1:80 HTTP/1.1\r\n")
    assert b"authorization" not in request_heads[0].lower()


def test_token_file_is_sent_and_refusal_is_one_line(tmp_path: Path) -> None:
    """It is shown, and the proxy's refusal is one line and exit code 2."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    request_heads: list[bytes] = []
    port, _ = start_proxy(b"HTTP/1.1 407 x\r\nContent-Length: 7\r\n\r\nshow it", request_heads)
    process = run(port, "--token-file", str(tmp_path / "token"))
    assert (process.returncode, process.stdout, process.stderr) == (2, b"", b"refloat: show it\n")
    assert f"Bearer {TOKEN}".encode() in request_heads[0]


def test_missing_fleet_is_an_error(tmp_path: Path) -> None:
    """Without --proxy a local fleet is required."""
    outcome = CliRunner().invoke(main, ["connect", "--home", str(tmp_path), "web.agent-1"])
    assert outcome.exit_code == 2
    assert "`refloat fleet up`, or give --proxy" in outcome.output


def test_token_of_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """REFLOAT_CONNECT_TOKEN is the token itself."""
    monkeypatch.setenv("REFLOAT_CONNECT_TOKEN", TOKEN)
    request_heads: list[bytes] = []
    port, _ = start_proxy(b"HTTP/1.1 200 OK\r\n\r\n", request_heads)
    assert run(port).returncode == 0
    assert f"Bearer {TOKEN}".encode() in request_heads[0]


def test_empty_token_file_is_an_error(tmp_path: Path) -> None:
    """One sentence."""
    (tmp_path / "token").write_text("")
    outcome = CliRunner().invoke(
        main, ["connect", "--proxy", "127.0.0.1:1", "--token-file", str(tmp_path / "token"), "web.agent-1"]
    )
    assert outcome.exit_code == 2
    assert "--token-file" in outcome.output
