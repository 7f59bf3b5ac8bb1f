"""The record of a running fleet: written at once, readable by its owner only, refused when the fleet has ended."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetError, FleetRecord, Member, NoFleetError, UnknownNameError
from fleet.processes import pids

OWN_PID = os.getpid()
RECORD = FleetRecord(
    cluster="default",
    pid=OWN_PID,
    born=pids.start_ticks(OWN_PID),
    started_at=1.0,
    agents=5,
    backend="redis://127.0.0.1:1/0",
    auth_balancer="127.0.0.1:2",
    proxy_balancer="127.0.0.1:3",
    control="127.0.0.1:4",
    token="secret",
    members=(
        Member(
            "auth-1",
            "auth",
            OWN_PID,
            pids.start_ticks(OWN_PID),
            "auth-1.log",
            grpc="127.0.0.1:5",
            diag="127.0.0.1:6",
        ),
    ),
)


def save_record(home: Path, record: FleetRecord = RECORD) -> Path:
    fleet_record.folder_of(home, record.cluster).mkdir(parents=True)
    return fleet_record.save(home, record)


def test_saved_record_is_loaded_unchanged(tmp_path: Path) -> None:
    """All fields are equal after a round trip."""
    save_record(tmp_path)
    assert fleet_record.load(tmp_path, "default") == RECORD
    assert RECORD.addresses_of("auth") == ["127.0.0.1:5"]


def test_saved_record_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """The record contains a token."""
    path = save_record(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["fleet.json"]


def test_load_without_fleet_names_the_command_to_start_one(tmp_path: Path) -> None:
    """The error contains `refloat fleet up`."""
    with pytest.raises(NoFleetError, match="refloat fleet up"):
        fleet_record.load(tmp_path, "default")


def test_load_without_fleet_names_the_cluster_to_start(tmp_path: Path) -> None:
    """Without the flag, another fleet would start."""
    with pytest.raises(NoFleetError, match="`refloat fleet up --cluster lab`"):
        fleet_record.load(tmp_path, "lab")


def test_load_of_ended_fleet_is_refused(tmp_path: Path) -> None:
    """A pid that another process has now does not belong to the fleet."""
    save_record(tmp_path, replace(RECORD, born=1))
    with pytest.raises(NoFleetError, match="has ended"):
        fleet_record.load(tmp_path, "default")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"members": [{}]}'])
def test_load_of_invalid_file_is_explained(tmp_path: Path, text: str) -> None:
    """The error is neither a traceback nor "no fleet"."""
    save_record(tmp_path).write_text(text)
    with pytest.raises(FleetError, match="cannot read"):
        fleet_record.load(tmp_path, "default")


def test_unknown_member_lists_the_processes() -> None:
    """The operator can correct a typing mistake at once."""
    with pytest.raises(UnknownNameError, match="its processes: auth-1"):
        RECORD.find_member("auth-9")
