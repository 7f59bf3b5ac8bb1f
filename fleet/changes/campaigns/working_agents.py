"""Marks the agents in progress of a campaign as *reconnecting* (verdict slug `working`). docs/reference/verdicts.md.

Each step writes all marks to Redis again, so it repairs a lost step, and marks that were lost with Redis.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet

from fleet.changes import engine
from fleet.changes.campaigns import campaigns
from fleet.models.changes import Change
from fleet.monitoring.state import StateError
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.campaigns import CampaignAgentState
from fleet.vocabulary.changes import EXCLUSIVE_STATES

logger = logging.getLogger(__name__)

#: Keys of `Change.progress`: Redis may hold marks of the campaign; and the last write of the marks failed.
_HAS_MARKS_KEY, _HAS_UNWRITTEN_MARKS_KEY = "has_marks", "has_unwritten_marks"


def mark_agents(change: Change, writer: Writer, progress: dict[str, Any]) -> None:
    """Mark the agents in progress of a running campaign until their timeout, and note that in `progress`."""
    timeout_seconds = campaigns.settings_of(change).timeout_seconds
    in_progress_rows = change.campaign_agents.filter(state=CampaignAgentState.IN_PROGRESS.value).values_list(
        "agent_id", "requested_at"
    )
    deadlines = {agent: (requested_at or 0.0) + timeout_seconds for agent, requested_at in in_progress_rows}
    if not deadlines and not progress.get(_HAS_MARKS_KEY):
        return
    if not change.progress.get(_HAS_MARKS_KEY):
        # Before Redis, so that whoever ends the campaign meanwhile knows that there are marks to remove.
        engine.update_change(change, progress={**change.progress, _HAS_MARKS_KEY: True})
    progress.update(_write_marks(change, writer, deadlines))


def find_ended_with_marks(changes: QuerySet[Change]) -> QuerySet[Change]:
    """Return the ended campaigns whose marks may still be in Redis."""
    marked_changes = changes.filter(**{f"progress__{_HAS_MARKS_KEY}": True})
    return marked_changes.exclude(state__in=[state.value for state in EXCLUSIVE_STATES])


def clear_marks(change: Change, writer: Writer) -> None:
    """Remove the marks of an ended campaign, under the lease of its cluster."""
    marked_changes = Change.objects.filter(cluster=change.cluster_id, **{f"progress__{_HAS_MARKS_KEY}": True})
    if marked_changes.filter(state__in=[state.value for state in EXCLUSIVE_STATES]).exists():
        # The next step of the running campaign replaces all marks.
        mark_fields: dict[str, Any] = {_HAS_MARKS_KEY: False}
    else:
        mark_fields = _write_marks(change, writer, {})
    if {**change.progress, **mark_fields} != change.progress:
        engine.update_change(change, progress={**change.progress, **mark_fields})


def _write_marks(change: Change, writer: Writer, deadlines: Mapping[str, float]) -> dict[str, Any]:
    """Write the marks; return what to note in `progress`. On an error the campaign goes on, and logs one warning."""
    try:
        writer.expect_reconnects(change.cluster_id, deadlines)
    except StateError as error:
        if not change.progress.get(_HAS_UNWRITTEN_MARKS_KEY):
            logger.warning(
                "campaign %d: could not mark agents as reconnecting in Redis: %s", change.pk, error
            )
        return {_HAS_MARKS_KEY: True, _HAS_UNWRITTEN_MARKS_KEY: True}
    return {_HAS_MARKS_KEY: bool(deadlines), _HAS_UNWRITTEN_MARKS_KEY: False}
