"""Errors of instances of a local fleet that do not respond."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from fleet.cli.local.unreachable import describe_unreachable, explain_unreachable
from fleet.cli.output import Failure
from fleet.nodes.local.record import FleetRecord, Member
from fleet.processes import pids
from fleet.processes.pids import ProcessState
from fleet.transport.admin import UnreachableError


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            ProcessState.FROZEN,
            "proxy-1 does not respond because it is frozen: run `refloat fleet resume proxy-1`",
        ),
        (
            ProcessState.DEAD,
            "proxy-1 does not respond because it is dead: run `refloat fleet restart proxy-1`",
        ),
        (ProcessState.RUNNING, "proxy-1 does not respond: timeout. `refloat fleet ps` shows its faults"),
    ],
)
def test_unreachable_instance_is_named_with_the_cause(state: ProcessState, message: str) -> None:
    """The error of gRPC names only an address."""
    assert describe_unreachable("proxy-1", state, "timeout") == message


def test_unreachable_instance_is_a_failure_with_its_current_state() -> None:
    """The state is read after the call."""
    pid = os.getpid()
    member = Member("proxy-1", "proxy", pid, pids.start_ticks(pid), "", grpc="127.0.0.1:1")
    record = FleetRecord("default", pid, None, 0.0, 0, "", "", "", "", "", members=(member,))
    with (
        pytest.raises(Failure, match="proxy-1 does not respond: refused"),
        explain_unreachable(record, "proxy-1"),
    ):
        raise UnreachableError("refused")
    dead_record = replace(record, members=(replace(member, born=1),))
    with pytest.raises(Failure, match="fleet restart"), explain_unreachable(dead_record, "proxy-1"):
        raise UnreachableError("refused")
