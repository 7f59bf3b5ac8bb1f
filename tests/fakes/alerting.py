"""Facts about a cluster for the alert rules, and a simulation that evaluates the rules over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fleet.alerts.evaluation import PreviousIncident, evaluate
from fleet.alerts.facts import AffectedGroup, ClusterFacts, SickInstance, make_blind_facts
from fleet.alerts.rules import DEFAULT_RULES, Rule
from fleet.alerts.silences import Silence
from fleet.alerts.steady_state import SteadyState, steady_state_of
from fleet.vocabulary.incidents import Cause, CauseKind, Incident, IncidentState, Notification, TimelineEntry

PROXY = Cause(CauseKind.PROXY, "proxy-id-1", "proxy-1")
AUTH = Cause(CauseKind.AUTH, "auth-id-1", "auth-1")
BACKEND = Cause(CauseKind.BACKEND, "default", "auth backend of cluster default")
NO_TUNNEL = Cause(CauseKind.AGENTS, "no-tunnel", "agents without a common cause (no-tunnel)")
AGENTS = 10_000


def healthy_facts(now: float = 0.0) -> ClusterFacts:
    """Return the facts of a cluster of 10,000 healthy agents."""
    return ClusterFacts("default", now, now, is_fresh=True, agent_count=AGENTS)


def stranded_facts(count: int, cause: Cause = PROXY, **count_by_agent_set: int) -> ClusterFacts:
    """Return the facts of a cluster where a cause strands `count` agents; a cause that is an instance is sick."""
    group = AffectedGroup(
        cause,
        stranded_count=count,
        stranded_by_agent_set=count_by_agent_set,
        agent_names=tuple(f"agent-{n}" for n in range(min(count, 10))),
    )
    instance = cause.kind in (CauseKind.PROXY, CauseKind.AUTH)
    sick = (SickInstance(cause, f"{cause.name} does not answer.", count),) if instance else ()
    return replace(
        healthy_facts(),
        affected_groups=(group,),
        sick_instances=sick,
        stranded_count=count,
        recently_lost_count=count,
    )


def stale_facts() -> ClusterFacts:
    """Return the facts of a cluster whose polling has stopped."""
    return make_blind_facts("default", 0.0, None, "Refloat monitoring has stopped: data is 47 s old.")


@dataclass
class AlertSimulation:
    """Evaluates alert rules for a cluster in simulated time."""

    rules: Sequence[Rule] = DEFAULT_RULES
    silences: Sequence[Silence] = ()
    now: float = 1_000_000.0
    #: Seconds between two polls of the fleet.
    poll_interval: float = 5.0
    incidents: dict[str, Incident] = field(default_factory=dict)
    previous_incidents: dict[str, PreviousIncident] = field(default_factory=dict)
    #: (seconds since the start, notification).
    notifications: list[tuple[float, Notification]] = field(default_factory=list)
    updates_in_place: list[Notification] = field(default_factory=list)
    timeline_entries: list[tuple[Incident, TimelineEntry]] = field(default_factory=list)
    #: The last state of every incident that has fired.
    fired_incidents: dict[str, Incident] = field(default_factory=dict)
    #: The newest evaluation that changed nothing, and the number of evaluations that it allowed to skip.
    steady_state: SteadyState | None = None
    skipped_evaluation_count: int = 0
    _evaluated_incidents: dict[str, Incident] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started_at = self.now

    def run(self, seconds: float, facts: ClusterFacts, step: float = 1.0) -> None:
        """Evaluate the rules every `step` seconds for `seconds`, while the cluster has these `facts`."""
        for _ in range(round(seconds / step)):
            self.now += step
            as_of = self.now - self.now % self.poll_interval
            current = replace(facts, now=self.now, as_of=as_of if facts.is_fresh else None)
            outcome = evaluate(
                self.incidents, current, self.rules, self.silences, self.previous_incidents.get
            )
            state = steady_state_of(outcome, current, self.rules, self.silences, None)
            if self.incidents != self._evaluated_incidents:
                # The test changed an incident, as an acknowledgement does.
                self.steady_state = None
            if self.steady_state is not None and self.steady_state.applies_to(
                current, self.rules, self.silences, None
            ):
                # The invariant of `fleet.alerts.steady_state`: a skipped evaluation would have changed nothing.
                assert state is not None, (
                    outcome.changed_incidents,
                    outcome.dropped_incidents,
                    outcome.notifications,
                )
                self.skipped_evaluation_count += 1
            else:
                self.steady_state = state
            self.incidents = outcome.incidents
            self._evaluated_incidents = {**outcome.incidents}
            for incident in outcome.changed_incidents:
                if incident.fired_at is not None:
                    self.fired_incidents[incident.id] = incident
                if incident.state is IncidentState.RESOLVED:
                    self.previous_incidents[incident.key] = PreviousIncident(
                        incident.generation, incident.flap_times
                    )
            self.updates_in_place += outcome.updates_in_place
            self.timeline_entries += outcome.timeline_entries
            self.notifications += [
                (self.now - self.started_at, notification) for notification in outcome.notifications
            ]

    @property
    def notification_kinds(self) -> list[str]:
        """The kinds of all notifications, oldest first."""
        return [notification.kind.value for _, notification in self.notifications]
