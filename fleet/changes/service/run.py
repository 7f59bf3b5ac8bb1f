"""Carries out service changes, on a worker: stores the drain request, moves agents, verifies what instances report."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import QuerySet
from typing_extensions import override

from fleet.audit import RequestActor
from fleet.changes import engine
from fleet.changes.base_runner import StepContext
from fleet.changes.campaigns.run import CampaignRunner, CampaignStepper
from fleet.changes.service import plan as service_plan
from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease
from fleet.models.drains import Drain
from fleet.models.moments import to_seconds
from fleet.monitoring.views import InstanceView
from fleet.vocabulary.changes import Actor, ActorKind, ChangeState

#: Key of `Change.progress`: the drain request of a change with a campaign is stored.
_DRAIN_STORED_KEY = "is_drain_stored"


class ServiceRunner(CampaignRunner):
    """Drains the instance and moves its agents; verifies drains by what the instances report."""

    @override
    def find_due(self, changes: QuerySet[Change]) -> Iterator[Change]:
        yield from super().find_due(changes)
        yield from changes.filter(state=ChangeState.VERIFYING.value)

    @override
    def step(self, change: Change, context: StepContext) -> None:
        if change.state == ChangeState.VERIFYING:
            _verify(change, context)
        else:
            super().step(change, context)

    @override
    def advance(self, change: Change, context: StepContext, held_lease: ClusterLease) -> None:
        if change.state == ChangeState.CONFIRMED and not service_plan.has_campaign(change):
            service_plan.store_drain(change, _actor_of(change), context.now())
            engine.transition(change, ChangeState.VERIFYING, context.now(), started_at=context.now())
            engine.mark_original_undone(change, context.now())
            return
        if change.state == ChangeState.CONFIRMED and service_plan.drains_first(engine.document_of(change)):
            # Also while another change runs, which delays only the campaign.
            _store_drain_once(change, context)
        super().advance(change, context, held_lease)

    @override
    def make_step(self, change: Change, context: StepContext, held_lease: ClusterLease) -> None:
        # An auth drains when its agents have moved. Before the change ends, so that a worker that dies repeats it.
        CampaignStepper(
            change, context, held_lease, before_success=lambda: _store_drain_once(change, context)
        ).run()


def _store_drain_once(change: Change, context: StepContext) -> None:
    if not change.progress.get(_DRAIN_STORED_KEY):
        service_plan.store_drain(change, _actor_of(change), context.now())
        engine.update_change(change, progress={**change.progress, _DRAIN_STORED_KEY: True})


def _actor_of(change: Change) -> RequestActor:
    """Return the author of a change, in whose name it is carried out."""
    author = Actor(ActorKind(change.actor_kind), change.actor_name, change.user_id)
    return RequestActor(author, change.request_id)


def _verify(change: Change, context: StepContext) -> None:
    """End a change when the instance reports what was requested, or cannot any more."""
    document = engine.document_of(change)
    name = document["name"]
    row = Drain.objects.filter(cluster=change.cluster_id, instance=document["instance"]).first()
    if row is None or row.is_drained is not document["is_drained"]:
        _fail(change, context, f"replaced by a later request before {name} accepted this one")
        return
    table = context.reader.table(change.cluster_id, context.clock())
    view = next((view for view in table.instances.values() if view.facts.id == document["instance"]), None)
    if view is None or view.facts.gone_at is not None:
        _fail(change, context, f"{name} was deregistered before it accepted the request")
    elif _has_responded(change, view) and (view.drain_request is not None) is document["is_drained"]:
        detail = (
            f"{name} reports that it accepts no new connections"
            if document["is_drained"]
            else f"{name} accepts new connections"
        )
        engine.transition(change, ChangeState.VERIFIED, context.now(), detail=detail)
    else:
        detail = row.error or f"waiting for {name} to respond"
        if change.detail != detail:
            engine.update_change(change, detail=detail)


def _has_responded(change: Change, view: InstanceView) -> bool:
    """Return whether an instance has responded to a poll since the change started."""
    started_at = 0.0 if change.started_at is None else to_seconds(change.started_at)
    return bool(view.facts.attempts) and view.facts.attempts[0].ok and view.facts.attempts[0].at >= started_at


def _fail(change: Change, context: StepContext, sentence: str) -> None:
    engine.transition(change, ChangeState.FAILED, context.now(), detail=sentence)
