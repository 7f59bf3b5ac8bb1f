"""Draining an instance from a page or by the API: which instance, if it is the last of its kind, and the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django.utils import timezone

from dashboards.shared import record_reader, request_actor
from fleet.audit import By
from fleet.changes.standing import drains
from fleet.changes.standing.drains import Wanted
from fleet.models.drains import Drain
from fleet.monitoring.views import InstanceView
from fleet.vocabulary.instances import InstanceState


@dataclass(frozen=True, slots=True)
class DrainTarget:
    """One instance that may be drained or undrained."""

    cluster: str
    view: InstanceView
    #: No other instance of its kind accepts connections.
    is_last: bool
    #: Names of all instances of the cluster, by id.
    names: Mapping[str, str]

    @property
    def row(self) -> Drain | None:
        """The last request of an operator; None when there was none."""
        return Drain.objects.filter(cluster=self.cluster, instance=self.view.facts.id).first()


def find_target(cluster: str, instance_id: str, now: float) -> DrainTarget | None:
    """Return the instance of this id; None when the record has no such instance."""
    views = record_reader.reader().instances(cluster, now)
    view = next((view for view in views if view.facts.id == instance_id), None)
    if view is None:
        return None
    others = (other for other in views if other.facts.kind is view.facts.kind and other is not view)
    names = {other.facts.id: other.facts.name for other in views}
    return DrainTarget(cluster, view, not any(map(accepts_connections, others)), names)


def accepts_connections(view: InstanceView) -> bool:
    """Return whether an agent that loses its connection may go to this instance."""
    return view.state is InstanceState.OK and view.draining is None


def request_drain(target: DrainTarget, author: By, *, drained: bool, reason: str) -> Drain:
    """Keep the request and its row in the log, and have a worker pass it to the instance."""
    facts = target.view.facts
    wish = Wanted(facts.id, facts.name, drained, reason, author)
    row = drains.ask(target.cluster, wish, timezone.now)
    request_actor.enqueue("fleet.tasks.apply_drains")
    return row
