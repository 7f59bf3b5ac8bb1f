"""Binary frames of snapshots: state bytes, or all columns of the map. docs/reference/live.md, "Messages"."""

from __future__ import annotations

import zlib

from fleet.monitoring.views import FleetTable, Snapshot

#: Columns of the map in the order of the frame. The first three have two bytes per agent, little-endian; `state` has
#: one. So every column starts at an even offset.
COLUMNS = ("proxy", "auth", "cause", "state")
#: The format of `zlib`, which browsers call "deflate".
ENCODING = "deflate"


def pack_columns(snapshot: Snapshot) -> bytes:
    """Return all columns of a snapshot, one after the other, compressed."""
    columns = snapshot.proxies + snapshot.auths + snapshot.causes + snapshot.states
    return zlib.compress(columns)


def pack_table_columns(table: FleetTable) -> bytes:
    """Return the same columns of a table."""
    places, verdicts = table.places, table.verdicts
    columns = (places["proxy"], places["auth"], verdicts["cause"], verdicts["state"])
    return zlib.compress(b"".join(column.tobytes() for column in columns))
