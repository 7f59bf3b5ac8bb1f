"""Plans of campaigns, for the page and the API."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime

from dashboards import reading
from dashboards.choosing import chosen
from fleet.control import Refused, campaigns, changes
from fleet.control.changes import By
from fleet.domain import campaign
from fleet.domain.actions import ChangeStep, of_change
from fleet.domain.changes import ChangeKind
from fleet.models.changes import Change


def plan(cluster: str, given: Mapping[str, str], pace: Mapping[str, object], by: By, now: datetime) -> Change:
    """Plan it, with a row in the log when it is refused. Raises Refused with problems by field, StateError."""
    table = reading.reader().table(cluster, reading.current_time())
    read = campaign.read_pace(pace)
    try:
        if read.problems:
            raise Refused(
                "; ".join(f"{name}: {why}" for name, why in read.problems.items()), dict(read.problems)
            )
        return campaigns.plan(cluster, table, chosen(table, given), read.pace, by, now, random.shuffle)
    except Refused as error:
        changes.refuse(by, of_change(ChangeKind.RECONNECT, ChangeStep.PLAN), cluster, str(error), now)
        raise
