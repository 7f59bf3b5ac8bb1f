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


def proxy_once(answer: bytes, heard: list[bytes]) -> tuple[int, threading.Thread]:
    """A port that answers one connection so, and then says back what else it hears."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as sock:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += sock.recv(4096)
            heard.append(head)
            sock.sendall(answer)
            while part := sock.recv(4096):
                sock.sendall(part)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    port: int = listening.getsockname()[1]
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


def test_standard_input_and_output() -> None:
    """What is piped in comes back, to its end; no token is sent where none is given."""
    heard: list[bytes] = []
    port, thread = proxy_once(b"HTTP/1.1 200 OK\r\n\r\nbanner ", heard)
    done = run(port)
    thread.join(timeout=60)
    assert (done.returncode, done.stdout) == (0, b"banner hello")
    assert heard[0].startswith(b"CONNECT web.agent-1:80 HTTP/1.1\r\n")
    assert b"authorization" not in heard[0].lower()


def test_token_from_a_file(tmp_path: Path) -> None:
    """It is shown, and the proxy's refusal is one line and exit code 2."""
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    heard: list[bytes] = []
    port, _ = proxy_once(b"HTTP/1.1 407 x\r\nContent-Length: 7\r\n\r\nshow it", heard)
    done = run(port, "--token-file", str(tmp_path / "token"))
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"refloat: show it\n")
    assert f"Bearer {TOKEN}".encode() in heard[0]


def test_no_fleet_and_no_proxy(tmp_path: Path) -> None:
    """Without a proxy it looks for a local fleet, and says that there is none."""
    result = CliRunner().invoke(main, ["connect", "--home", str(tmp_path), "web.agent-1"])
    assert result.exit_code == 2
    assert "fleet 'default' is not running" in result.output


def test_token_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """REFLOAT_CONNECT_TOKEN is the token itself."""
    monkeypatch.setenv("REFLOAT_CONNECT_TOKEN", TOKEN)
    heard: list[bytes] = []
    port, _ = proxy_once(b"HTTP/1.1 200 OK\r\n\r\n", heard)
    assert run(port).returncode == 0
    assert f"Bearer {TOKEN}".encode() in heard[0]


def test_token_file_that_is_empty(tmp_path: Path) -> None:
    """One sentence."""
    (tmp_path / "token").write_text("")
    result = CliRunner().invoke(
        main, ["connect", "--proxy", "127.0.0.1:1", "--token-file", str(tmp_path / "token"), "web.agent-1"]
    )
    assert result.exit_code == 2
    assert "--token-file" in result.output
