"""Reconnect campaigns, as a kind of change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from typing_extensions import override

from fleet.changes import engine
from fleet.changes.campaigns import campaigns
from fleet.changes.engine import By
from fleet.changes.kind import Action, Kind
from fleet.models.changes import Change
from fleet.vocabulary.changes import OCCUPYING

_TOLD = ("total", "done", "percent", "failed", "ok", "skipped", "remaining", "waits_for")


class ReconnectKind(Kind):
    """Agents that are asked to reconnect. The list of agents is frozen with the plan."""

    actions: Mapping[str, Action] = {
        "pause": engine.pause,
        "resume": campaigns.resume,
        "stop": campaigns.stop,
        "abort": campaigns.abort,
    }

    @override
    def progress(self, change: Change, now: float) -> Mapping[str, Any]:
        described = campaigns.described(change, now)
        return {**{name: described[name] for name in _TOLD}, "eta_seconds": described["eta"]}

    @override
    def must_stand(self, change: Change) -> None:
        """Nothing to look for: operators cannot write what the plan was made on."""

    @override
    def cancel(self, change: Change, by: By, now: datetime) -> Change:
        if change.state in OCCUPYING:
            return super().cancel(change, by, now)
        return campaigns.call_off(change, by, now)

    @override
    def offers_undo(self, change: Change) -> bool:
        return False
