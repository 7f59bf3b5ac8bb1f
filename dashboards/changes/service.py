"""Takes instances out of service and brings them back, for the page and the API."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.utils import timezone

from dashboards.shared import record_reader, request_actor
from dashboards.shared.instance_states import find_stranding_instances
from fleet.audit import RequestActor
from fleet.changes import NoEvidenceError, engine, kinds
from fleet.changes.operations import drains
from fleet.changes.service import plan as service_plan
from fleet.changes.service.plan import ServiceForecast
from fleet.models.changes import Change
from fleet.models.drains import Drain
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.campaigns import CampaignSettings
from fleet.vocabulary.instances import InstanceState


@dataclass(frozen=True, slots=True)
class TargetInstance:
    """An instance to take out of service or to bring back."""

    cluster: str
    view: InstanceView
    table: FleetTable
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

    @property
    def forecast(self) -> ServiceForecast:
        """What happens to its agents when it is taken out of service. Raises NoEvidenceError."""
        return service_plan.forecast_out_of_service(self.table, self.view)


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
    requested_ids = drains.read_requested_ids(cluster)
    has_alternative = any(accepts_connections(other_view, requested_ids) for other_view in same_kind_views)
    names = {other_view.facts.id: other_view.facts.name for other_view in views}
    is_stranding = view.facts.index in find_stranding_instances(table)
    return TargetInstance(cluster, view, table, not has_alternative, names, is_stranding)


def accepts_connections(view: InstanceView, requested_ids: Collection[str] = ()) -> bool:
    """Return whether an instance accepts new connections: it is OK and not draining.

    `requested_ids`: ids of the instances that an operator drained with Refloat, which may not report the drain yet.
    """
    return (
        view.state is InstanceState.OK and view.drain_request is None and view.facts.id not in requested_ids
    )


def request_drain(
    target_instance: TargetInstance, actor: RequestActor, *, should_drain: bool, reason: str
) -> tuple[Change, Drain]:
    """Store the request as a change, and have a worker send it to the instance; return the change and the request."""
    change, row = service_plan.request_drain(
        target_instance.cluster,
        target_instance.view,
        actor,
        reason,
        timezone.now,
        is_drained=should_drain,
        affected_count=_count_affected_agents(target_instance),
    )
    request_actor.enqueue("fleet.tasks.apply_drains")
    return change, row


def _count_affected_agents(target_instance: TargetInstance) -> int | None:
    """Return the number of agents that a drain affects; None without current data."""
    try:
        return target_instance.forecast.campaign.target_count
    except NoEvidenceError:
        return None


def plan_out_of_service(
    target_instance: TargetInstance, settings: CampaignSettings, actor: RequestActor
) -> Change:
    """Plan to take an instance out of service, and return the change. Raises NoEvidenceError."""
    return service_plan.plan_out_of_service(
        target_instance.cluster,
        target_instance.table,
        target_instance.view,
        settings,
        actor,
        timezone.now(),
        random.shuffle,
    )


def take_out_of_service(
    target_instance: TargetInstance,
    settings: CampaignSettings,
    actor: RequestActor,
    *,
    reason: str,
    typed_name: str,
) -> Change:
    """Plan and confirm at once, after a page that showed the forecast; return the change. Raises ChangeRefusedError."""
    change = plan_out_of_service(target_instance, settings, actor)
    kinds.confirm(change, actor, reason=reason, typed_name=typed_name, now=timezone.now())
    if engine.can_start(change):
        request_actor.enqueue_change(change)
    return change
