"""Plans of campaigns, for the page and the API."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime

from dashboards.changes.target_agents import chosen
from dashboards.shared import record_reader
from fleet.audit import By
from fleet.changes import Refused, engine
from fleet.changes.campaigns import campaigns
from fleet.models.changes import Change
from fleet.vocabulary import campaigns as campaign
from fleet.vocabulary.changes import ChangeKind


def plan(cluster: str, given: Mapping[str, str], pace: Mapping[str, object], by: By, now: datetime) -> Change:
    """Plan it, with a row in the log when it is refused. Raises Refused with problems by field, StateError."""
    table = record_reader.reader().table(cluster, record_reader.current_time())
    read = campaign.read_pace(pace)
    with engine.plan_attempt(ChangeKind.RECONNECT, cluster, by, now):
        if read.problems:
            raise Refused(
                "; ".join(f"{name}: {why}" for name, why in read.problems.items()), dict(read.problems)
            )
        return campaigns.plan(cluster, table, chosen(table, given), read.pace, by, now, random.shuffle)
