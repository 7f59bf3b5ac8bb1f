"""Rows of the record: empty rows name no instance, and rows are small."""

from __future__ import annotations

from fleet.monitoring import columns


def test_empty_heartbeats_name_no_instance() -> None:
    """Zeros would mean the first instance."""
    rows = columns.blank_heartbeats(3)

    assert len(rows) == 3
    assert (rows["auth"] == columns.NO_INSTANCE).all()
    assert (rows["via_proxy"] == columns.NO_INSTANCE).all()


def test_empty_memory_names_no_instance() -> None:
    """The same for memory rows."""
    rows = columns.blank_memory(2)

    assert (rows["home_proxy"] == columns.NO_INSTANCE).all()
    assert (rows["last_auth"] == columns.NO_INSTANCE).all()
    assert (rows["last_proxies"] == columns.NO_INSTANCE).all()


def test_heartbeat_row_is_small() -> None:
    """The budget per agent is 64 bytes including tunnels."""
    assert columns.HEARTBEAT.itemsize < 64
