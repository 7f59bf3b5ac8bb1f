"""Degrading instances: for a limited time balancers prefer others to them.

It is one request to the instance, which keeps the time itself: no row holds it up as one holds up a drain, so a restart
of the instance ends it. docs/destination-health.md, "Degrading from the console". Sending it is in `degrading_run.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.changes.audit import Attempt
from fleet.vocabulary.actions import AuditAction
from fleet.vocabulary.changes import Actor


@dataclass(frozen=True, slots=True)
class DegradeRequest:
    """What an operator requests of one instance; plain values, for a task carries it."""

    cluster: str
    instance: str
    name: str
    degraded: bool
    reason: str
    #: How long, when `degraded`.
    seconds: float
    request_id: str = ""

    def attempt(self, actor: Actor, detail: str = "") -> Attempt:
        """Return its row in the log."""
        return Attempt(
            actor,
            AuditAction.INSTANCE_DEGRADE if self.degraded else AuditAction.INSTANCE_RESTORE,
            self.cluster,
            subject=self.name,
            reason=self.reason,
            after={"instance": self.instance, "degraded": self.degraded, "seconds": self.seconds},
            detail=detail,
            request_id=self.request_id,
        )
