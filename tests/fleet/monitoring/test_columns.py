"""Rows of the record: fresh ones name nobody, and a live agent's evidence stays small."""

from __future__ import annotations

from fleet.monitoring import columns


def test_empty_heartbeats_name_no_instance() -> None:
    """Zeros would mean the first instance there is."""
    rows = columns.empty_heartbeats(3)

    assert len(rows) == 3
    assert (rows["auth"] == columns.NO_INSTANCE).all()
    assert (rows["via_proxy"] == columns.NO_INSTANCE).all()


def test_empty_memory_names_no_instance() -> None:
    """As above, for what is remembered."""
    rows = columns.empty_memory(2)

    assert (rows["home"] == columns.NO_INSTANCE).all()
    assert (rows["last_auth"] == columns.NO_INSTANCE).all()
    assert (rows["last_proxies"] == columns.NO_INSTANCE).all()


def test_heartbeat_row_is_small() -> None:
    """64 bytes of live evidence for an agent is the budget, tunnels included."""
    assert columns.HEARTBEAT.itemsize < 64
