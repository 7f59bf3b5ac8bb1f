"""`refloat fleet config` against a real auth."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from click.testing import CliRunner, Result

from fleet.cli.main import main
from fleet.nodes.local import plan as fleet_plan
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetRecord, Member
from fleet.processes import pids
from fleet.processes.supervisor import Supervisor, is_json_ready
from tests.fakes.config_auth import serving
from tests.fakes.wrong_values import NETWORKING


@pytest.fixture(scope="module")
def auth(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An auth's address."""
    folder = Path(tmp_path_factory.mktemp("auth"))
    argv = ["--name", "auth-1", "--backend", valkey_url, "--backend-prefix", f"cli{os.getpid()}"]
    with Supervisor(folder) as supervisor:
        child = supervisor.start(
            "auth-1", fleet_plan.node("auth", *argv), env={**os.environ}, ready=is_json_ready
        )
        supervisor.await_ready([child], timeout=60)
        yield str(child.ready_message["grpc"])


@pytest.fixture
def refloat(auth: str) -> Any:
    """The command, on a config that was reset."""

    def run(command: str, *args: str, typed: str = "", **env: str) -> Result:
        return CliRunner().invoke(
            main, ["fleet", "config", command, "--auth", auth, *args], input=typed, env=env
        )

    assert run("reset").exit_code == 0
    return run


def spec(refloat: Any) -> dict[str, Any]:
    shown: dict[str, Any] = yaml.safe_load(refloat("get").stdout)["spec"]
    return shown


def editor(tmp_path: Path, *steps: str) -> str:
    """An $EDITOR that does one step each time it is opened; `text` is the file, `refloat` changes the config."""
    script = tmp_path / "editor.py"
    counter = tmp_path / "opened"
    script.write_text(
        f"""
import pathlib, subprocess, sys
def refloat(*args):
    subprocess.run([sys.executable, "-m", "fleet.cli", "fleet", "config", *args], check=True, stdout=2)
counter = pathlib.Path({str(counter)!r})
step = int(counter.read_text()) if counter.exists() else 0
counter.write_text(str(step + 1))
path = pathlib.Path(sys.argv[-1])
text = path.read_text()
pathlib.Path({str(tmp_path)!r}, f"seen-{{step}}").write_text(text)
text = [{", ".join(f"lambda: {step}" for step in steps)}][step]()
path.write_text(text)
"""
    )
    return f"{sys.executable} {script}"


def test_get(refloat: Any) -> None:
    """YAML for people, JSON for programs, the same document."""
    as_yaml, as_json = yaml.safe_load(refloat("get").stdout), json.loads(refloat("get", "--json").stdout)
    assert as_yaml == as_json
    assert as_yaml["kind"] == "cluster_networking_config"
    assert as_yaml["spec"]["keep_alive_interval"] == "5m0s"


def test_set(refloat: Any) -> None:
    """Fields by key, long or short; what was changed is told, and is there."""
    done = refloat(
        "set", "tunnel_strategy.type=proxy_peering", "agent_connection_count=2", "ssh_dial_timeout=9s"
    )
    assert done.exit_code == 0, done.output
    assert "tunnel_strategy.type: 'agent_mesh' -> 'proxy_peering'" in done.stdout
    assert "config updated, revision " in done.stdout
    shown = spec(refloat)
    assert shown["tunnel_strategy"] == {"type": "proxy_peering", "agent_connection_count": 2}
    assert shown["ssh_dial_timeout"] == "9s"


def test_set_refuses_a_wrong_value_of_every_field(refloat: Any) -> None:
    """Each by its key, before anything is written."""
    assert refloat("set", "tunnel_strategy.type=proxy_peering").exit_code == 0
    before = spec(refloat)
    for key, text, _value, words in NETWORKING:
        result = refloat("set", f"{key}={text}")
        assert result.exit_code == 2, (key, result.output)
        assert f"{key}: " in result.output
        assert re.search(words, result.output)
    assert spec(refloat) == before


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("keep_alive_interval=2h", "keep_alive_interval: 2h0m0s is out of range. Use 1s to 1h0m0s"),
        ("keepalive=1s", "keepalive: is not a field"),
        ("ssh_dial_timeout", "'ssh_dial_timeout': expected KEY=VALUE"),
    ],
)
def test_set_what_cannot_be(refloat: Any, given: str, said: str) -> None:
    """One line, exit code 2, nothing written."""
    done = refloat("set", "graceful_tunnel_closing=true", given)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("refloat: ")
    assert said in done.stderr
    assert spec(refloat)["graceful_tunnel_closing"] is False


def test_edit(refloat: Any, tmp_path: Path) -> None:
    """What is wrong is shown above the text, and the second try is written."""
    done = refloat(
        "edit",
        typed="y\n",
        EDITOR=editor(
            tmp_path,
            "text.replace('keep_alive_count_max: 3', 'keep_alive_count_max: 300')",
            "text.replace('keep_alive_count_max: 300', 'keep_alive_count_max: 30')",
        ),
    )
    assert done.exit_code == 0, done.output
    assert "keep_alive_count_max: 300 is out of range. Use 1 to 100" in done.stderr
    assert (tmp_path / "seen-1").read_text().startswith("#! keep_alive_count_max: 300 is out of range")
    assert "keep_alive_count_max: 3 -> 30" in done.stdout
    assert spec(refloat)["keep_alive_count_max"] == 30


@pytest.mark.parametrize("step", ["text", "''", "'# nothing'"])
def test_edit_left_as_it_is(refloat: Any, tmp_path: Path, step: str) -> None:
    """Unchanged or empty: nothing is written."""
    before = refloat("get").stdout
    done = refloat("edit", EDITOR=editor(tmp_path, step))
    assert (done.exit_code, done.stdout) == (0, "no changes: the config stays as it is\n")
    assert refloat("get").stdout == before


def test_edit_given_up(refloat: Any, tmp_path: Path) -> None:
    """Who gives up finds what they typed in a file."""
    done = refloat("edit", typed="n\n", EDITOR=editor(tmp_path, "'spec: {typed: wrong}'"))
    assert done.exit_code == 2
    path = Path(done.stderr.rpartition("your text is saved in ")[2].strip())
    assert "typed: wrong" in path.read_text()
    path.unlink()


def test_edit_meets_another_writer(refloat: Any, auth: str, tmp_path: Path) -> None:
    """Somebody writes while the editor is open: told, and both changes can stand together."""
    change = "text.replace('keep_alive_count_max: 3', 'keep_alive_count_max: 30')"
    other = f"(refloat('set', '--auth', {auth!r}, 'ssh_dial_timeout=7s'), {change})[1]"
    done = refloat("edit", typed="y\n", EDITOR=editor(tmp_path, other, "text"))
    assert done.exit_code == 0, done.output
    assert "conflict: the config was changed" in done.stderr
    assert "ssh_dial_timeout: '0s' -> '7s'" in done.stderr
    shown = spec(refloat)
    assert (shown["keep_alive_count_max"], shown["ssh_dial_timeout"]) == (30, "7s")


def test_editor_that_is_none(refloat: Any) -> None:
    """One line."""
    done = refloat("edit", EDITOR="no-such-editor")
    assert (done.exit_code, "check $EDITOR" in done.stderr) == (2, True)


def test_gateway_of_the_fleet_is_asked_first_and_passed_by_when_dead(tmp_path: Path) -> None:
    """The config is the one that the gateway leads to; when nobody answers there, an auth's own."""

    def revision(gateway: str, auth: str) -> str:
        born = pids.start_ticks(os.getpid())
        member = Member("auth-1", "auth", os.getpid(), born, "", grpc=auth)
        record = FleetRecord(
            "default", os.getpid(), born, 0.0, 0, "", "", "", "", "", members=(member,), gateway=gateway
        )
        fleet_record.folder(tmp_path, "default").mkdir(parents=True, exist_ok=True)
        fleet_record.save(tmp_path, record)
        got = CliRunner().invoke(main, ["fleet", "config", "get", "--home", str(tmp_path)])
        return str(yaml.safe_load(got.stdout)["metadata"]["revision"])

    with serving() as through_gateway, serving() as direct:
        through_gateway.held.metadata.revision = "through"
        direct.held.metadata.revision = "direct"

        assert revision(through_gateway.address, direct.address) == "through"
        assert revision("127.0.0.1:1", direct.address) == "direct"
        through_gateway.fails = grpc.StatusCode.PERMISSION_DENIED
        assert revision(through_gateway.address, direct.address) == "direct"


def test_nobody_answers(tmp_path: Path) -> None:
    """No fleet, or an address where nobody listens: one line and exit code 2."""
    none = CliRunner().invoke(main, ["fleet", "config", "get", "--home", str(tmp_path)])
    assert (none.exit_code, none.stderr.count("\n")) == (2, 1)
    dead = CliRunner().invoke(main, ["fleet", "config", "get", "--auth", "127.0.0.1:1"])
    assert (dead.exit_code, dead.stderr.count("\n")) == (2, 1)
    wrong = CliRunner().invoke(main, ["fleet", "config", "get", "--auth", "x"])
    assert (wrong.exit_code, "--auth" in wrong.stderr) == (2, True)
