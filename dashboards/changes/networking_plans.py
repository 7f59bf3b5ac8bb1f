"""Plans of the networking config, for the page and the API: what is seen now, and taking a change back."""

from __future__ import annotations

from datetime import datetime

from dashboards.shared import reading
from fleet.changes import Refused, engine
from fleet.changes.engine import By
from fleet.changes.networking import revisions
from fleet.changes.networking.plan import Fleet
from fleet.changes.networking.sight import fleet_of
from fleet.models.changes import Change
from fleet.vocabulary.changes import ChangeState


def sight(cluster: str) -> Fleet:
    """What is seen of the fleet now, for a plan. Raises Blind, StateError."""
    now = reading.current_time()
    reader = reading.reader()
    return fleet_of(reader.table(cluster, now), reader.answers(cluster), now)


def take_back(change: Change, by: By, now: datetime) -> Change:
    """Plan what was stored before a change, where nobody changed it again. Raises Refused, StateError."""
    cluster = change.cluster_id
    try:
        if ChangeState.UNDONE not in engine.followers(change):
            raise Refused("only a change that was carried out can be taken back")
        wanted = revisions.taken_back(change)
    except Refused as error:
        revisions.refused(cluster, by, now, str(error))
        raise
    base = revisions.must_be_read(cluster).revision
    return revisions.plan(cluster, base, wanted, by, now, lambda: sight(cluster), undoes=change.pk)
