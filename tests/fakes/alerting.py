"""A cluster as alerting sees it, and a clock that looks at it: for tests by simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fleet.alerts.facts import AffectedGroup, Facts, SickInstance, blind_facts
from fleet.alerts.round import PreviousIncident, evaluate
from fleet.alerts.rules import DEFAULT_RULES, Rule
from fleet.alerts.silences import Silence
from fleet.alerts.unchanged_looks import SteadyState, steady_state_after
from fleet.vocabulary.incidents import Cause, CauseKind, Incident, IncidentState, Notification

PROXY = Cause(CauseKind.PROXY, "proxy-id-1", "proxy-1")
AUTH = Cause(CauseKind.AUTH, "auth-id-1", "auth-1")
BACKEND = Cause(CauseKind.BACKEND, "default", "auth backend of cluster default")
NO_TUNNEL = Cause(CauseKind.AGENTS, "no-tunnel", "agents without a common cause (no-tunnel)")
AGENTS = 10_000


def sound(now: float = 0.0) -> Facts:
    """Ten thousand agents, all well."""
    return Facts("default", now, now, fresh=True, agent_count=AGENTS)


def stranded(count: int, cause: Cause = PROXY, **labelled: int) -> Facts:
    """So many agents stranded by a cause that is sick itself, if it is an instance."""
    group = AffectedGroup(
        cause,
        stranded_count=count,
        stranded_by_label=labelled,
        names=tuple(f"agent-{n}" for n in range(min(count, 10))),
    )
    instance = cause.kind in (CauseKind.PROXY, CauseKind.AUTH)
    sick = (SickInstance(cause, f"{cause.name} does not answer.", count),) if instance else ()
    return replace(sound(), groups=(group,), sick=sick, stranded_count=count, recently_lost_count=count)


def sightless() -> Facts:
    """Polling has stopped."""
    return blind_facts("default", 0.0, None, "Refloat monitoring has stopped: data is 47 s old.")


@dataclass
class Watch:
    """Looks at a cluster through a simulated time."""

    rules: Sequence[Rule] = DEFAULT_RULES
    quiet: Sequence[Silence] = ()
    now: float = 1_000_000.0
    #: Seconds between two rounds.
    interval: float = 5.0
    incidents: dict[str, Incident] = field(default_factory=dict)
    past: dict[str, PreviousIncident] = field(default_factory=dict)
    #: (seconds since the watch began, message).
    notices: list[tuple[float, Notification]] = field(default_factory=list)
    #: Every incident that ever fired, as it was last.
    fired: dict[str, Incident] = field(default_factory=dict)
    #: The newest look that changed nothing, and how many looks it made needless.
    calm: SteadyState | None = None
    needless: int = 0
    _left: dict[str, Incident] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = self.now

    def run(self, seconds: float, facts: Facts, step: float = 1.0) -> None:
        """Let the cluster be like that for so long, looking at it every `step` seconds."""
        for _ in range(round(seconds / step)):
            self.now += step
            as_of = self.now - self.now % self.interval
            seen = replace(facts, now=self.now, as_of=as_of if facts.fresh else None)
            outcome = evaluate(self.incidents, seen, self.rules, self.quiet, self.past.get)
            calm = steady_state_after(outcome, seen, self.rules, self.quiet, None)
            if self.incidents != self._left:
                # A test changed one, as people do who acknowledge it.
                self.calm = None
            if self.calm is not None and self.calm.applies_to(seen, self.rules, self.quiet, None):
                # The law of `fleet.alerts.unchanged_looks`: a look that is left out would have changed nothing.
                assert calm is not None, (
                    outcome.changed_incidents,
                    outcome.dropped_incidents,
                    outcome.notifications,
                )
                self.needless += 1
            else:
                self.calm = calm
            self.incidents = outcome.incidents
            self._left = {**outcome.incidents}
            for one in outcome.changed_incidents:
                if one.fired_at is not None:
                    self.fired[one.id] = one
                if one.state is IncidentState.RESOLVED:
                    self.past[one.key] = PreviousIncident(one.generation, one.flips)
            self.notices += [(self.now - self.began, notice) for notice in outcome.notifications]

    @property
    def kinds(self) -> list[str]:
        """The messages, as words."""
        return [notice.kind.value for _, notice in self.notices]
