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
from fleet.vocabulary.campaigns import AgentState
from fleet.vocabulary.changes import OCCUPYING

logger = logging.getLogger(__name__)

#: In `Change.progress`: the record may name agents of it; and it could not be told the last time.
_MARKED, _UNTOLD = "working", "working_untold"


def mark(change: Change, writer: Writer, progress: dict[str, Any]) -> None:
    """Say whom a running campaign has under way, each until it would have failed; take note of it in `progress`."""
    patience = campaigns.pace_of(change).patience
    asked = change.campaign_agents.filter(state=AgentState.ASKED.value).values_list("agent_id", "asked_at")
    until = {agent: (at or 0.0) + patience for agent, at in asked}
    if not until and not progress.get(_MARKED):
        return
    if not change.progress.get(_MARKED):
        # Before the record: who ends it meanwhile must know that there is something to take away.
        engine.note(change, progress={**change.progress, _MARKED: True})
    progress.update(_told(change, writer, until))


def left_over(changes: QuerySet[Change]) -> QuerySet[Change]:
    """Return those of some changes that are over while the record may still name their agents."""
    ended = changes.filter(**{f"progress__{_MARKED}": True})
    return ended.exclude(state__in=[state.value for state in OCCUPYING])


def clear(change: Change, writer: Writer) -> None:
    """Take the marks of one that is over away, with the lease of its cluster."""
    others = Change.objects.filter(cluster=change.cluster_id, **{f"progress__{_MARKED}": True})
    if others.filter(state__in=[state.value for state in OCCUPYING]).exists():
        # The next step of the one that runs says who is working, and names none of this one's.
        said: dict[str, Any] = {_MARKED: False}
    else:
        said = _told(change, writer, {})
    if {**change.progress, **said} != change.progress:
        engine.note(change, progress={**change.progress, **said})


def _told(change: Change, writer: Writer, until: Mapping[str, float]) -> dict[str, Any]:
    """Tell the record; answers what is to be noted. Without it the campaign goes on, said once in the log."""
    try:
        writer.expect_reconnects(change.cluster_id, until)
    except StateError as error:
        if not change.progress.get(_UNTOLD):
            logger.warning("campaign %d: nobody is shown as working: %s", change.pk, error)
        return {_MARKED: True, _UNTOLD: True}
    return {_MARKED: bool(until), _UNTOLD: False}
