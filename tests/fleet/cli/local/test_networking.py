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
from fleet.processes.supervisor import Supervisor, has_ready_line
from tests.fakes.config_auth import run_config_auth
from tests.fakes.wrong_values import NETWORKING


@pytest.fixture(scope="module")
def auth(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An auth's address."""
    folder = Path(tmp_path_factory.mktemp("auth"))
    argv = ["--name", "auth-1", "--backend", valkey_url, "--backend-prefix", f"cli{os.getpid()}"]
    with Supervisor(folder) as supervisor:
        child = supervisor.start(
            "auth-1",
            fleet_plan.make_node_argv("auth", *argv),
            env={**os.environ},
            readiness_probe=has_ready_line,
        )
        supervisor.await_ready([child], timeout=60)
        yield str(child.ready_message["grpc"])


@pytest.fixture
def refloat(auth: str) -> Any:
    """Return a function that runs the command; the config is reset before."""

    def run(command: str, *args: str, stdin: str = "", **env: str) -> Result:
        return CliRunner().invoke(
            main, ["fleet", "config", command, "--auth", auth, *args], input=stdin, env=env
        )

    assert run("reset").exit_code == 0
    return run


def spec(refloat: Any) -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(refloat("get").stdout)["spec"]
    return values


def editor(tmp_path: Path, *steps: str) -> str:
    """Return an $EDITOR that runs one of `steps` each time; `text` is the file, `refloat` changes the config."""
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
pathlib.Path({str(tmp_path)!r}, f"opened-{{step}}").write_text(text)
text = [{", ".join(f"lambda: {step}" for step in steps)}][step]()
path.write_text(text)
"""
    )
    return f"{sys.executable} {script}"


def test_get_prints_yaml_or_json(refloat: Any) -> None:
    """YAML for people, JSON for programs, the same document."""
    as_yaml, as_json = yaml.safe_load(refloat("get").stdout), json.loads(refloat("get", "--json").stdout)
    assert as_yaml == as_json
    assert as_yaml["kind"] == "cluster_networking_config"
    assert as_yaml["spec"]["keep_alive_interval"] == "5m0s"


def test_set_changes_fields_by_key(refloat: Any) -> None:
    """Full or short keys; the changes are printed and stored."""
    outcome = refloat(
        "set", "tunnel_strategy.type=proxy_peering", "agent_connection_count=2", "ssh_dial_timeout=9s"
    )
    assert outcome.exit_code == 0, outcome.output
    assert "tunnel_strategy.type: 'agent_mesh' -> 'proxy_peering'" in outcome.stdout
    assert "config updated, revision " in outcome.stdout
    values = spec(refloat)
    assert values["tunnel_strategy"] == {"type": "proxy_peering", "agent_connection_count": 2}
    assert values["ssh_dial_timeout"] == "9s"


def test_set_refuses_an_invalid_value_of_every_field(refloat: Any) -> None:
    """Each by its key, before anything is written."""
    assert refloat("set", "tunnel_strategy.type=proxy_peering").exit_code == 0
    before = spec(refloat)
    for key, text, _value, pattern in NETWORKING:
        outcome = refloat("set", f"{key}={text}")
        assert outcome.exit_code == 2, (key, outcome.output)
        assert f"{key}: " in outcome.output
        assert re.search(pattern, outcome.output)
    assert spec(refloat) == before


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "keep_alive_interval=2h",
            "keep_alive_interval: 2h0m0s is out of range. Use 1s to 1h, or 0 for the default of 5 min",
        ),
        ("keepalive=1s", "keepalive: is not a field"),
        ("ssh_dial_timeout", "'ssh_dial_timeout': expected KEY=VALUE"),
    ],
)
def test_set_refuses_invalid_arguments(refloat: Any, argument: str, message: str) -> None:
    """One line, exit code 2, nothing written."""
    outcome = refloat("set", "graceful_tunnel_closing=true", argument)
    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("refloat: ")
    assert message in outcome.stderr
    assert spec(refloat)["graceful_tunnel_closing"] is False


def test_edit_shows_errors_and_retries(refloat: Any, tmp_path: Path) -> None:
    """The error is shown above the text; the corrected text is written."""
    outcome = refloat(
        "edit",
        stdin="y\n",
        EDITOR=editor(
            tmp_path,
            "text.replace('keep_alive_count_max: 3', 'keep_alive_count_max: 300')",
            "text.replace('keep_alive_count_max: 300', 'keep_alive_count_max: 30')",
        ),
    )
    assert outcome.exit_code == 0, outcome.output
    assert "keep_alive_count_max: 300 is out of range. Use 1 to 100" in outcome.stderr
    assert (tmp_path / "opened-1").read_text().startswith("#! keep_alive_count_max: 300 is out of range")
    assert "keep_alive_count_max: 3 -> 30" in outcome.stdout
    assert spec(refloat)["keep_alive_count_max"] == 30


@pytest.mark.parametrize("step", ["text", "''", "'# nothing'"])
def test_unchanged_edit_writes_nothing(refloat: Any, tmp_path: Path, step: str) -> None:
    """Unchanged or empty: nothing is written."""
    before = refloat("get").stdout
    outcome = refloat("edit", EDITOR=editor(tmp_path, step))
    assert (outcome.exit_code, outcome.stdout) == (0, "no changes: the config stays as it is\n")
    assert refloat("get").stdout == before


def test_cancelled_edit_saves_the_text_in_a_file(refloat: Any, tmp_path: Path) -> None:
    """The text is saved when the edit is cancelled."""
    outcome = refloat("edit", stdin="n\n", EDITOR=editor(tmp_path, "'spec: {typed: wrong}'"))
    assert outcome.exit_code == 2
    path = Path(outcome.stderr.rpartition("your text is saved in ")[2].strip())
    assert "typed: wrong" in path.read_text()
    path.unlink()


def test_edit_is_rebased_on_a_concurrent_write(refloat: Any, auth: str, tmp_path: Path) -> None:
    """Both changes are kept."""
    change = "text.replace('keep_alive_count_max: 3', 'keep_alive_count_max: 30')"
    edit_with_concurrent_write = f"(refloat('set', '--auth', {auth!r}, 'ssh_dial_timeout=7s'), {change})[1]"
    outcome = refloat("edit", stdin="y\n", EDITOR=editor(tmp_path, edit_with_concurrent_write, "text"))
    assert outcome.exit_code == 0, outcome.output
    assert "conflict: the config was changed" in outcome.stderr
    assert "ssh_dial_timeout: '0s' -> '7s'" in outcome.stderr
    values = spec(refloat)
    assert (values["keep_alive_count_max"], values["ssh_dial_timeout"]) == (30, "7s")


def test_missing_editor_is_an_error(refloat: Any) -> None:
    """One line."""
    outcome = refloat("edit", EDITOR="no-such-editor")
    assert (outcome.exit_code, "check $EDITOR" in outcome.stderr) == (2, True)


def save_record(home: Path, gateway: str, auth: str) -> None:
    start_ticks = pids.start_ticks(os.getpid())
    member = Member("auth-1", "auth", os.getpid(), start_ticks, "", grpc=auth)
    record = FleetRecord(
        "default",
        os.getpid(),
        start_ticks,
        0.0,
        0,
        "",
        "",
        "",
        "",
        "",
        members=(member,),
        gateway=gateway,
    )
    fleet_record.folder_of(home, "default").mkdir(parents=True, exist_ok=True)
    fleet_record.save(home, record)


def test_config_is_read_from_the_gateway_or_else_from_an_auth(tmp_path: Path) -> None:
    """An auth is used if the gateway does not respond."""

    def revision(gateway: str, auth: str) -> str:
        save_record(tmp_path, gateway, auth)
        outcome = CliRunner().invoke(main, ["fleet", "config", "get", "--home", str(tmp_path)])
        return str(yaml.safe_load(outcome.stdout)["metadata"]["revision"])

    with run_config_auth() as through_gateway, run_config_auth() as direct:
        through_gateway.config.metadata.revision = "through"
        direct.config.metadata.revision = "direct"

        assert revision(through_gateway.address, direct.address) == "through"
        assert revision("127.0.0.1:1", direct.address) == "direct"
        through_gateway.error_code = grpc.StatusCode.PERMISSION_DENIED
        assert revision(through_gateway.address, direct.address) == "direct"


def test_unreachable_fleet_is_an_error(tmp_path: Path) -> None:
    """No fleet, an unreachable address or an invalid one."""
    without_fleet = CliRunner().invoke(main, ["fleet", "config", "get", "--home", str(tmp_path)])
    assert (without_fleet.exit_code, without_fleet.stderr.count("\n")) == (2, 1)
    unreachable = CliRunner().invoke(main, ["fleet", "config", "get", "--auth", "127.0.0.1:1"])
    assert (unreachable.exit_code, unreachable.stderr.count("\n")) == (2, 1)
    invalid_address = CliRunner().invoke(main, ["fleet", "config", "get", "--auth", "x"])
    assert (invalid_address.exit_code, "--auth" in invalid_address.stderr) == (2, True)


def test_auth_that_answers_without_its_backend_is_not_called_unreachable(tmp_path: Path) -> None:
    """The hint is about --auth only if the flag is given; without it, the fleet's auths were used."""
    with run_config_auth() as auth:
        auth.error_code = grpc.StatusCode.UNAVAILABLE
        save_record(tmp_path, "", auth.address)
        of_fleet = CliRunner().invoke(main, ["fleet", "config", "get", "--home", str(tmp_path)])
        of_address = CliRunner().invoke(main, ["fleet", "config", "get", "--auth", auth.address])
    assert of_fleet.stderr.startswith("refloat: no auth can serve the networking config: ")
    assert of_fleet.stderr.endswith(
        ". `refloat fleet ps` shows the state of the auths and of their backend\n"
    )
    assert of_address.stderr.endswith(". Check --auth\n")
