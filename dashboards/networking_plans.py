"""Plans of the networking config, for the page and the API: what is seen now, and taking a change back."""

from __future__ import annotations

from datetime import datetime

from dashboards import reading
from fleet.control import Refused, changes, networking
from fleet.control.changes import By
from fleet.control.sight import fleet_of
from fleet.domain.changes import ChangeState
from fleet.domain.networking_plan import Fleet
from fleet.models.changes import Change


def sight(cluster: str) -> Fleet:
    """What is seen of the fleet now, for a plan. Raises Blind, StateError."""
    now = reading.current_time()
    reader = reading.reader()
    return fleet_of(reader.table(cluster, now), reader.answers(cluster), now)


def take_back(change: Change, by: By, now: datetime) -> Change:
    """Plan what was stored before a change, where nobody changed it again. Raises Refused, StateError."""
    cluster = change.cluster_id
    try:
        if ChangeState.UNDONE not in changes.followers(change):
            raise Refused("only a change that was carried out can be taken back")
        wanted = networking.taken_back(change)
    except Refused as error:
        networking.refused(cluster, by, now, str(error))
        raise
    base = networking.must_be_read(cluster).revision
    return networking.plan(cluster, base, wanted, by, now, lambda: sight(cluster), undoes=change.pk)
