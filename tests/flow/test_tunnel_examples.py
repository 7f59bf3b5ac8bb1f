"""The tunnel's examples are programs that run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"


def start(name: str, address: str) -> subprocess.Popen[str]:
    """Start an example as a reader would."""
    command = [sys.executable, str(EXAMPLES / name), address]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_examples_server_greets_the_clients_target() -> None:
    """The client registers, the server opens a session to it, and the greeting comes back in capitals."""
    with start("tunnel_server.py", "127.0.0.1:0") as server:
        assert server.stdout is not None
        port = server.stdout.readline().split()[-1]
        with start("tunnel_client.py", f"127.0.0.1:{port}") as client:
            try:
                out, _ = server.communicate(timeout=180)
                assert client.stdout is not None
                assert client.stdout.readline() == "registered\n"
            finally:
                client.kill()
        assert out == "HELLO, RADIO\n"
        assert server.returncode == 0
