"""Nodes as forks of one process. tests/flow/test_fleet_up.py runs whole fleets of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from fleet.nodes.__main__ import _NODES
from fleet.nodes.local import forked_nodes
from tests.meta.house import ROOT

_PROGRAM = """
import json, os, signal, sys, threading
from fleet.nodes.local import forked_nodes

forked_nodes.import_shared_modules()
tasks = len(os.listdir("/proc/self/task"))
spawn = forked_nodes.create_spawner("balancer")
argv = [sys.executable, "-m", "fleet.nodes", "balancer", *sys.argv[2:]]
results = []
for _ in range(2):
    with open(sys.argv[1], "wb") as log:
        child = spawn(argv, env={**os.environ, "COLUMNS": "60"}, log=log, on_parent_death=signal.SIGKILL)
    results.append([type(child).__name__, child.wait(60), open(sys.argv[1]).read()])
    # Threads do not survive a fork.
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(json.dumps([tasks, results]))
"""


def _run(tmp_path: Path, *arguments: str) -> tuple[int, list[tuple[str, int, str]]]:
    """Start a balancer twice, the second time from a process with a thread; return (kind, exit code, output)."""
    output = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "log"), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    tasks, results = json.loads(output)
    return tasks, [(kind, code, text) for kind, code, text in results]


def test_fork_behaves_like_the_program(tmp_path: Path) -> None:
    """The same output and exit code; a process with threads executes the program instead."""
    tasks, ((first_kind, first_code, first_text), (second_kind, second_code, second_text)) = _run(
        tmp_path, "--help"
    )
    assert tasks == 1, "the shared modules start a thread"
    assert (first_kind, second_kind) == ("Fork", "Popen")
    assert first_code == second_code == 0
    assert first_text == second_text
    assert "--target" in first_text


def test_usage_error_of_a_fork_is_one_line(tmp_path: Path) -> None:
    """As that of the program."""
    _, ((_, code, text), _) = _run(tmp_path, "--no-such-option")
    assert code == 2
    assert len(text.splitlines()) == 1
    assert "--no-such-option" in text


def test_forked_roles_are_nodes() -> None:
    """Every one is started by `fleet.nodes`."""
    assert forked_nodes.FORKED_ROLES.issubset(_NODES)
