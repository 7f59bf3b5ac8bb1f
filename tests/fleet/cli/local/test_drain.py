"""`refloat fleet drain` and its kin against a real proxy."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from fleet.nodes.local import plan as fleet_plan
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetRecord, Member
from fleet.processes import pids
from fleet.processes.supervisor import Supervisor, is_json_ready
from fleet.protocol.destination.instance_status import EMPTY_STATUS, InstanceStatus, read


@pytest.fixture
def home(valkey_url: str, tmp_path: Path) -> Iterator[Path]:
    """The home of a fleet of one proxy; its balancer is only on paper."""
    argv = ["--name", "proxy-1", "--backend", valkey_url, "--backend-prefix", f"drain{os.getpid()}"]
    argv += ["--heartbeat-to", "backend"]
    born = pids.start_ticks(os.getpid())
    with Supervisor(tmp_path / "logs") as supervisor:
        child = supervisor.start(
            "proxy-1", fleet_plan.node("proxy", *argv), env={**os.environ}, ready=is_json_ready
        )
        supervisor.await_ready([child], timeout=60)
        members = tuple(
            Member(
                name,
                role,
                os.getpid(),
                born,
                "",
                **{k: str(child.ready_message[k]) for k in ("grpc", "diag")},
            )
            for name, role in (("proxy-1", "proxy"), ("balancer-1", "balancer"))
        )
        record = FleetRecord(
            "default", os.getpid(), born, 0.0, 0, valkey_url, "", "", "", "", members=members
        )
        fleet_record.folder(tmp_path, "default").mkdir(parents=True)
        fleet_record.save(tmp_path, record)
        yield tmp_path


def refloat(home: Path, command: str, *args: str) -> Result:
    return CliRunner().invoke(main, ["fleet", command, "--home", str(home), *args])


def said(home: Path) -> InstanceStatus:
    diag = fleet_record.load(home, "default").member("proxy-1").diag
    with urllib.request.urlopen(f"http://{diag}/readyz", timeout=60) as answer:
        return read(answer.headers.items())


def test_instance_says_what_it_was_told(home: Path) -> None:
    """Each word and its undoing, as anybody sees it who asks for `/readyz`."""
    done = refloat(home, "drain", "proxy-1", "--reason", "kernel update")
    assert done.exit_code == 0, done.output
    assert done.output == "proxy-1 accepts no new connections\n"
    assert refloat(home, "degrade", "proxy-1", "--for", "1h").exit_code == 0
    assert said(home) == InstanceStatus("no reason given", "kernel update")
    assert refloat(home, "undrain", "proxy-1").exit_code == 0
    assert refloat(home, "undegrade", "proxy-1").exit_code == 0
    assert said(home) == EMPTY_STATUS


def test_what_cannot_be_done_is_one_sentence(home: Path) -> None:
    """Exit code 2, no traceback, and nothing done to the others."""
    for args, says in (
        (("proxy-1", "balancer-1"), "balancer-1 is not an auth or a proxy"),
        (("proxy-9",), "'proxy-9' was not found"),
        (("proxy-1", "--reason", "x" * 300), "reason"),
    ):
        done = refloat(home, "drain", *args)
        assert done.exit_code == 2
        assert says in done.output
    assert said(home) == EMPTY_STATUS
