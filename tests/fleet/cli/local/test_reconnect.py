"""`refloat fleet reconnect` against a real proxy."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fleet.cli.local.reconnect import find_agent_id, format_advice
from fleet.cli.main import main
from fleet.nodes.local import plan as fleet_plan
from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetRecord, Member
from fleet.nodes.shared.flags import host_id
from fleet.processes import pids
from fleet.processes.supervisor import Supervisor, has_ready_line
from fleet.transport.admin import ReconnectAdviceResult


@pytest.fixture
def home(valkey_url: str, tmp_path: Path) -> Iterator[Path]:
    """The home of a fleet that has one proxy, an auth and a balancer; only the proxy runs."""
    argv = ["--name", "proxy-1", "--backend", valkey_url, "--backend-prefix", f"reconnect{os.getpid()}"]
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
                f"{role}-1",
                role,
                os.getpid(),
                start_ticks,
                "",
                grpc=str(child.ready_message["grpc"]),
                id=f"{role}-id",
            )
            for role in ("proxy", "auth", "balancer")
        )
        record = FleetRecord(
            "default", os.getpid(), start_ticks, 0.0, 0, valkey_url, "", "", "", "", members=members
        )
        fleet_record.folder_of(tmp_path, "default").mkdir(parents=True)
        fleet_record.save(tmp_path, record)
        yield tmp_path


def refloat(home: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["fleet", "reconnect", "--home", str(home), *args])


def test_agents_are_given_by_name_or_id() -> None:
    """Agents of a local fleet have ids that are derived from their names."""
    agent_id = host_id("default", "agent", "agent-1")
    assert find_agent_id("default", "agent-1") == agent_id
    assert find_agent_id("default", agent_id.upper()) == agent_id
    assert find_agent_id("lab", "agent-1") != agent_id


def test_absent_agents_are_shown_as_they_were_given() -> None:
    """At most five, and none if the proxy sends no ids."""
    ids = tuple(f"id-{number}" for number in range(7))
    advice = ReconnectAdviceResult("p", 1, 0, 0, 7, 0, absent_ids=ids)
    assert format_advice(advice, {"id-0": "agent-1"}) == (
        "1 agents advised, 7 not connected to this proxy (agent-1, id-1, id-2, id-3, id-4, ...)"
    )
    assert format_advice(replace(advice, absent_ids=()), {}).endswith("7 not connected to this proxy")


def test_reconnect_prints_the_counts(home: Path) -> None:
    """For each proxy, with the id of the advisory."""
    outcome = refloat(home, "proxy-1", "--agent", "nobody")
    assert outcome.exit_code == 0, outcome.output
    assert "proxy-1: 0 agents advised, 1 not connected to this proxy (nobody)" in outcome.output
    rows = json.loads(refloat(home, "proxy-1", "--json", "--id", "mine").stdout)
    assert [(row["name"], row["id"], row["advised_count"]) for row in rows] == [("proxy-1", "mine", 0)]


def test_reconnect_off_an_auth_goes_through_every_proxy(home: Path) -> None:
    """This also works if the auth is unreachable."""
    outcome = refloat(home, "auth-1", "--agent", "nobody")
    assert outcome.exit_code == 0, outcome.output
    assert "proxy-1: 0 agents advised, 1 not connected to this proxy (nobody)" in outcome.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("balancer-1",), "balancer-1 is not a proxy or an auth"),
        (("proxy-9",), "'proxy-9' was not found"),
        (("proxy-1", "--reason", "x" * 300), "reason"),
    ],
)
def test_invalid_request_fails_with_one_line(home: Path, args: tuple[str, ...], message: str) -> None:
    """Exit code 2, no traceback."""
    outcome = refloat(home, *args)
    assert outcome.exit_code == 2
    assert message in outcome.output
