"""Plans campaigns for the page and the API."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime

from dashboards.changes.target_agents import select_campaign_targets
from dashboards.shared import record_reader
from fleet.audit import RequestActor
from fleet.changes import ChangeRefusedError, engine
from fleet.changes.campaigns import campaigns
from fleet.models.changes import Change
from fleet.vocabulary import campaigns as campaign_rules
from fleet.vocabulary.changes import ChangeKind


def plan_campaign(
    cluster: str,
    filters: Mapping[str, str],
    raw_settings: Mapping[str, object],
    actor: RequestActor,
    now: datetime,
) -> Change:
    """Plan a campaign and return the change; a refusal has an audit entry.

    Raises ChangeRefusedError with problems, StateError.
    """
    table = record_reader.reader().table(cluster, record_reader.current_time())
    parsed_settings = campaign_rules.parse_campaign_settings(raw_settings)
    with engine.record_refused_plan(ChangeKind.RECONNECT, cluster, actor, now):
        if parsed_settings.problems:
            raise ChangeRefusedError(
                "; ".join(f"{name}: {reason}" for name, reason in parsed_settings.problems.items()),
                dict(parsed_settings.problems),
            )
        return campaigns.plan_campaign(
            cluster,
            table,
            select_campaign_targets(table, filters),
            parsed_settings.settings,
            actor,
            now,
            random.shuffle,
        )
