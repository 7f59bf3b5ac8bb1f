"""Errors of calls to instances of the local fleet that do not respond: by name, with the cause and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fleet.cli.output import Failure
from fleet.nodes.local.record import FleetRecord
from fleet.processes.pids import ProcessState
from fleet.transport.admin import UnreachableError


@contextmanager
def explain_unreachable(record: FleetRecord, name: str) -> Iterator[None]:
    """Turn an UnreachableError of a call to an instance into a Failure that says why and what to do."""
    try:
        yield
    except UnreachableError as error:
        raise Failure(describe_unreachable(name, record.find_member(name).state, str(error))) from error


def describe_unreachable(name: str, state: ProcessState, reason: str) -> str:
    """Return why an instance did not respond, and what to do. `reason` is the error of the call."""
    if state is ProcessState.FROZEN:
        return f"{name} does not respond because it is frozen: run `refloat fleet resume {name}`"
    if state is ProcessState.DEAD:
        return f"{name} does not respond because it is dead: run `refloat fleet restart {name}`"
    return f"{name} does not respond: {reason}. `refloat fleet ps` shows its faults"
