"""Drains and undrains instances for the page and the API."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.utils import timezone

from dashboards.shared import record_reader, request_actor
from dashboards.shared.instance_states import find_stranding_instances
from fleet.audit import RequestActor
from fleet.changes.operations import drains
from fleet.changes.operations.drains import InstanceDrainRequest
from fleet.models.drains import Drain
from fleet.monitoring.views import InstanceView
from fleet.vocabulary.instances import InstanceState


@dataclass(frozen=True, slots=True)
class TargetInstance:
    """An instance to drain or undrain."""

    cluster: str
    view: InstanceView
    #: No other instance of the same kind accepts connections and is not to be drained.
    is_last_of_kind: bool
    #: Names of all instances of the cluster, by id.
    instance_names: Mapping[str, str]
    #: It strands agents now.
    is_stranding: bool

    @property
    def row(self) -> Drain | None:
        """The last request of an operator for the instance; None: there was none."""
        return Drain.objects.filter(cluster=self.cluster, instance=self.view.facts.id).first()


def find_target_instance(cluster: str, instance_id: str, now: float) -> TargetInstance | None:
    """Return the instance with this id; None when there is none in the fleet."""
    table = record_reader.reader().table(cluster, now)
    views = table.instances.values()
    view = next((view for view in views if view.facts.id == instance_id), None)
    if view is None:
        return None
    same_kind_views = [
        other_view
        for other_view in views
        if other_view.facts.kind is view.facts.kind and other_view is not view
    ]
    # An instance reports its drain some seconds after the request.
    requested_ids = frozenset(
        Drain.objects.filter(cluster=cluster, is_drained=True).values_list("instance", flat=True)
    )
    has_alternative = any(accepts_connections(other_view, requested_ids) for other_view in same_kind_views)
    names = {other_view.facts.id: other_view.facts.name for other_view in views}
    is_stranding = view.facts.index in find_stranding_instances(table)
    return TargetInstance(cluster, view, not has_alternative, names, is_stranding)


def accepts_connections(view: InstanceView, requested_ids: Collection[str] = ()) -> bool:
    """Return whether an instance accepts new connections: it is OK and not draining.

    `requested_ids`: ids of the instances that an operator drained with Refloat, which may not report the drain yet.
    """
    return (
        view.state is InstanceState.OK and view.drain_request is None and view.facts.id not in requested_ids
    )


def request_drain(
    target_instance: TargetInstance, actor: RequestActor, *, should_drain: bool, reason: str
) -> Drain:
    """Store the request and its audit entry, and have a worker send it to the instance."""
    facts = target_instance.view.facts
    drain_request = InstanceDrainRequest(facts.id, facts.name, should_drain, reason, actor)
    row = drains.record_drain_request(target_instance.cluster, drain_request, timezone.now)
    request_actor.enqueue("fleet.tasks.apply_drains")
    return row
