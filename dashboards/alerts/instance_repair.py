"""What is known of a failing instance, and how to repair it, for the runbook that *Repair proxy-1* opens."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dashboards.shared import record_reader
from dashboards.shared.instance_states import find_stranding_instances
from dashboards.shared.presenters import InstanceCard, age_ms_of, instance_card_of, to_moment_or_none
from fleet.alerts.runbooks.repair import repair_steps_of
from fleet.monitoring.state import StateError
from fleet.vocabulary.instances import SICK_STATES


@dataclass(frozen=True, slots=True)
class RepairMoment:
    """A time in the list of what is known."""

    label: str
    at: datetime | None
    #: Negative if it is in the future.
    age_ms: int | None


@dataclass(frozen=True, slots=True)
class InstanceRepair:
    """A failing instance and what to do about it."""

    card: InstanceCard
    moments: tuple[RepairMoment, ...]
    #: Sentences, in the order in which to follow them.
    steps: tuple[str, ...]


def read_repair(cluster: str, instance_id: str, now: float) -> InstanceRepair | None:
    """Return an instance of the newest round with its repair; None if it is not known, or no data can be read."""
    try:
        table = record_reader.reader().table(cluster, now)
    except StateError:
        return None
    views_by_id = {view.facts.id: view for view in table.instances.values()}
    view = views_by_id.get(instance_id)
    if view is None:
        return None
    facts = view.facts
    names = {key: instance_view.facts.name for key, instance_view in views_by_id.items()}
    responses = [facts.serving_at, facts.readyz_at, *(attempt.at for attempt in facts.attempts if attempt.ok)]
    moments = {
        "Failing since": facts.sick_since if view.state in SICK_STATES else None,
        "Last response": max((at for at in responses if at), default=None),
        "Heartbeat expiry": facts.expires_at,
    }
    return InstanceRepair(
        instance_card_of(view, now, names, is_stranding=facts.index in find_stranding_instances(table)),
        tuple(
            RepairMoment(label, to_moment_or_none(at), age_ms_of(at, now))
            for label, at in moments.items()
            if at
        ),
        repair_steps_of(view, now, names.get(facts.heartbeat_auth, "")),
    )
