"""Carries out and verifies retirements, on a worker."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import QuerySet
from typing_extensions import override

from fleet.audit import RequestActor
from fleet.changes import engine
from fleet.changes.base_runner import Runner, StepContext
from fleet.changes.operations import retirements
from fleet.models.changes import Change
from fleet.models.clusters import ClusterLease
from fleet.models.inventory import Agent
from fleet.vocabulary.changes import Actor, ActorKind, ChangeState
from fleet.vocabulary.counts import format_agent_count
from fleet.vocabulary.verdicts import State


class RetireRunner(Runner):
    """Stores the retirements of a confirmed plan, and ends a change when the fleet data shows them."""

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
        if change.state == ChangeState.CONFIRMED:
            author = Actor(ActorKind(change.actor_kind), change.actor_name, change.user_id)
            retirements.carry_out(change, RequestActor(author, change.request_id), context.now())


def _verify(change: Change, context: StepContext) -> None:
    """End a change when the fleet data shows it, or when a later request has replaced it."""
    is_retired, agent_ids = bool(engine.document_of(change)["is_retired"]), set(change.parameters["agents"])
    retired_ids = set(
        Agent.objects.filter(cluster=change.cluster_id, is_retired=True).values_list("agent_id", flat=True)
    )
    if replaced_ids := agent_ids - retired_ids if is_retired else agent_ids & retired_ids:
        detail = f"a later request replaced this one for {format_agent_count(len(replaced_ids))}"
        engine.transition(change, ChangeState.FAILED, context.now(), detail=detail)
        return
    table = context.reader.table(change.cluster_id, context.clock())
    indices = [index for index, agent_id in enumerate(table.ids) if agent_id in agent_ids]
    if ((table.verdicts["state"][indices] == State.RETIRED) == is_retired).all():
        state_text = "retired" if is_retired else "reinstated"
        detail = f"{format_agent_count(change.affected_count)} {state_text}"
        engine.transition(change, ChangeState.VERIFIED, context.now(), detail=detail)
