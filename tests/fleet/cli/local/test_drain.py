"""`refloat fleet drain`, `degrade` and their opposites against a real proxy."""

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
from fleet.processes.supervisor import Supervisor, has_ready_line
from fleet.protocol.destination.instance_status import EMPTY_STATUS, InstanceStatus, from_headers


@pytest.fixture
def home(valkey_url: str, tmp_path: Path) -> Iterator[Path]:
    """The home of a fleet with one running proxy; its balancer exists only in the record."""
    argv = ["--name", "proxy-1", "--backend", valkey_url, "--backend-prefix", f"drain{os.getpid()}"]
    argv += ["--heartbeat-to", "backend"]
    start_ticks = pids.start_ticks(os.getpid())
    with Supervisor(tmp_path / "logs") as supervisor:
        child = supervisor.start(
            "proxy-1",
            fleet_plan.make_node_argv("proxy", *argv),
            env={**os.environ},
            readiness_probe=has_ready_line,
        )
        supervisor.await_ready([child], timeout=60)
        members = tuple(
            Member(
                name,
                role,
                os.getpid(),
                start_ticks,
                "",
                **{k: str(child.ready_message[k]) for k in ("grpc", "diag")},
            )
            for name, role in (("proxy-1", "proxy"), ("balancer-1", "balancer"))
        )
        record = FleetRecord(
            "default", os.getpid(), start_ticks, 0.0, 0, valkey_url, "", "", "", "", members=members
        )
        fleet_record.folder_of(tmp_path, "default").mkdir(parents=True)
        fleet_record.save(tmp_path, record)
        yield tmp_path


def refloat(home: Path, command: str, *args: str) -> Result:
    return CliRunner().invoke(main, ["fleet", command, "--home", str(home), *args])


def read_status(home: Path) -> InstanceStatus:
    diag = fleet_record.load(home, "default").find_member("proxy-1").diag
    with urllib.request.urlopen(f"http://{diag}/readyz", timeout=60) as answer:
        return from_headers(answer.headers.items())


def test_instance_reports_drain_and_degrade_requests(home: Path) -> None:
    """`/readyz` shows each request until it is removed."""
    outcome = refloat(home, "drain", "proxy-1", "--reason", "kernel update")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output == "proxy-1 accepts no new connections\n"
    assert refloat(home, "degrade", "proxy-1", "--for", "1h").exit_code == 0
    assert read_status(home) == InstanceStatus("no reason given", "kernel update")
    assert refloat(home, "undrain", "proxy-1").exit_code == 0
    assert refloat(home, "undegrade", "proxy-1").exit_code == 0
    assert read_status(home) == EMPTY_STATUS


def test_invalid_request_fails_with_one_line(home: Path) -> None:
    """Exit code 2, no traceback, and nothing done to the others."""
    for args, message in (
        (("proxy-1", "balancer-1"), "balancer-1 is not an auth or a proxy"),
        (("proxy-9",), "'proxy-9' was not found"),
        (("proxy-1", "--reason", "x" * 300), "reason"),
    ):
        outcome = refloat(home, "drain", *args)
        assert outcome.exit_code == 2
        assert message in outcome.output
    assert read_status(home) == EMPTY_STATUS
