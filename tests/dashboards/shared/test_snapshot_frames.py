"""Frames of columns: what a browser finds in them."""

from __future__ import annotations

import zlib

import numpy as np

from dashboards.shared.snapshot_frames import COLUMNS, pack_columns, pack_table_columns
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader


def test_columns_follow_each_other() -> None:
    """Proxy, auth and cause with two bytes per agent, then the state with one."""
    reader = FakeReader(states=[State.HEALTHY, State.STRANDED, State.AT_RISK], as_of=1000.0)
    snapshot = reader.snapshot("default", 1000.0)
    columns = zlib.decompress(pack_columns(snapshot))
    assert COLUMNS == ("proxy", "auth", "cause", "state")
    assert np.frombuffer(columns, "<u2", 9).tolist() == [2, 3, 2, 0, 1, 0, 65535, 65535, 65535]
    assert columns[18:] == bytes([State.HEALTHY, State.STRANDED, State.AT_RISK])
    assert zlib.decompress(pack_table_columns(reader.table("default", 1000.0))) == columns
