"""Which agents are *working*: those a campaign has asked, until what became of them is known. docs/verdicts.md.

The record is told all of them at once, so a step that was lost, or a Redis that was away, is made good by the next.
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

#: In `Change.progress`: the record may name agents of it; and it could not be told the last time.
_MARKED_KEY, _UNMARKED_KEY = "working", "working_untold"


def mark_agents(change: Change, writer: Writer, progress: dict[str, Any]) -> None:
    """Say whom a running campaign has under way, each until it would have failed; take note of it in `progress`."""
    timeout_seconds = campaigns.settings_of(change).patience
    requested_rows = change.campaign_agents.filter(state=CampaignAgentState.ASKED.value).values_list("agent_id", "asked_at")
    deadlines = {agent: (requested_at or 0.0) + timeout_seconds for agent, requested_at in requested_rows}
    if not deadlines and not progress.get(_MARKED_KEY):
        return
    if not change.progress.get(_MARKED_KEY):
        # Before the record: who ends it meanwhile must know that there is something to take away.
        engine.update_change(change, progress={**change.progress, _MARKED_KEY: True})
    progress.update(_write_marks(change, writer, deadlines))


def find_marked_ended(changes: QuerySet[Change]) -> QuerySet[Change]:
    """Return those of some changes that are over while the record may still name their agents."""
    marked_changes = changes.filter(**{f"progress__{_MARKED_KEY}": True})
    return marked_changes.exclude(state__in=[state.value for state in EXCLUSIVE_STATES])


def clear_marks(change: Change, writer: Writer) -> None:
    """Take the marks of one that is over away, with the lease of its cluster."""
    marked_changes = Change.objects.filter(cluster=change.cluster_id, **{f"progress__{_MARKED_KEY}": True})
    if marked_changes.filter(state__in=[state.value for state in EXCLUSIVE_STATES]).exists():
        # The next step of the one that runs says who is working, and names none of this one's.
        marks: dict[str, Any] = {_MARKED_KEY: False}
    else:
        marks = _write_marks(change, writer, {})
    if {**change.progress, **marks} != change.progress:
        engine.update_change(change, progress={**change.progress, **marks})


def _write_marks(change: Change, writer: Writer, deadlines: Mapping[str, float]) -> dict[str, Any]:
    """Tell the record; answers what is to be noted. Without it the campaign goes on, said once in the log."""
    try:
        writer.expect_reconnects(change.cluster_id, deadlines)
    except StateError as error:
        if not change.progress.get(_UNMARKED_KEY):
            logger.warning("campaign %d: nobody is shown as working: %s", change.pk, error)
        return {_MARKED_KEY: True, _UNMARKED_KEY: True}
    return {_MARKED_KEY: bool(deadlines), _UNMARKED_KEY: False}
