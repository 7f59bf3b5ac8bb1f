"""The record of a running fleet: written whole, readable by its owner, refused when its fleet has ended."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.nodes.local import record as fleet_record
from fleet.nodes.local.record import FleetError, FleetRecord, Member, NoFleetError, UnknownNameError
from fleet.processes import pids

ME = os.getpid()
RECORD = FleetRecord(
    cluster="default",
    pid=ME,
    born=pids.start_ticks(ME),
    started_at=1.0,
    agents=5,
    backend="redis://127.0.0.1:1/0",
    auth_balancer="127.0.0.1:2",
    proxy_balancer="127.0.0.1:3",
    control="127.0.0.1:4",
    token="secret",
    members=(
        Member(
            "auth-1", "auth", ME, pids.start_ticks(ME), "auth-1.log", grpc="127.0.0.1:5", diag="127.0.0.1:6"
        ),
    ),
)


def saved(home: Path, record: FleetRecord = RECORD) -> Path:
    fleet_record.folder(home, record.cluster).mkdir(parents=True)
    return fleet_record.save(home, record)


def test_load_reads_what_save_wrote(tmp_path: Path) -> None:
    """Nothing is lost."""
    saved(tmp_path)
    assert fleet_record.load(tmp_path, "default") == RECORD
    assert RECORD.addresses("auth") == ["127.0.0.1:5"]


def test_save_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    """It holds a token."""
    path = saved(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["fleet.json"]


def test_load_no_fleet_says_how_to_start_one(tmp_path: Path) -> None:
    """Whoever asks learns what to type."""
    with pytest.raises(NoFleetError, match="refloat fleet up"):
        fleet_record.load(tmp_path, "default")


def test_load_fleet_that_died_is_no_fleet(tmp_path: Path) -> None:
    """A pid that somebody else has now is not our fleet."""
    saved(tmp_path, replace(RECORD, born=1))
    with pytest.raises(NoFleetError, match="has ended"):
        fleet_record.load(tmp_path, "default")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"members": [{}]}'])
def test_load_a_broken_file_is_told_apart(tmp_path: Path, text: str) -> None:
    """Not a traceback, and not "no fleet"."""
    saved(tmp_path).write_text(text)
    with pytest.raises(FleetError, match="cannot read"):
        fleet_record.load(tmp_path, "default")


def test_member_unknown_lists_the_known() -> None:
    """A typing mistake is mended in one look."""
    with pytest.raises(UnknownNameError, match="its processes: auth-1"):
        RECORD.member("auth-9")
