"""Values of alerting: severities, causes, findings, incidents, notifications. Pure; times in seconds since 1970."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.vocabulary.enum_types import NumberedEnum
from fleet.vocabulary.verdicts import State


@dataclass(frozen=True, slots=True)
class SeverityLook:
    """The number of a severity, and how notifications and pages show it."""

    number: int
    #: Prefix of the subject of notifications.
    subject_prefix: str
    #: Verdict whose colours and symbol the severity uses.
    colour_state: State


class Severity(NumberedEnum):
    """Severity of an incident. Values are stored in the database."""

    look: SeverityLook

    #: Shown on pages and in the API, and sent in digests only.
    INFO = SeverityLook(0, "INFO", State.EXCESS)
    WARNING = SeverityLook(1, "WARN", State.AT_RISK)
    CRITICAL = SeverityLook(2, "CRIT", State.STRANDED)


class CauseKind(StrEnum):
    """Kind of the cause of an incident, strongest first: docs/reference/alerts.md, "Inhibition"."""

    CONSOLE = "console"
    CLUSTER = "cluster"
    BACKEND = "backend"
    #: Auths and proxies of one region.
    REGION = "region"
    AUTH = "auth"
    GROUP = "proxy-group"
    PROXY = "proxy"
    #: Agents without a failing instance as the cause, by reason.
    AGENTS = "agents"
    #: The whole fleet: loss rate of agents, excess tunnels, drift.
    FLEET = "fleet"
    #: The identity of Refloat for the cluster, which expires.
    IDENTITY = "identity"


class IncidentState(StrEnum):
    """Stage of an incident, from the first finding to the end. Values are stored in the database."""

    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    RESOLVED = "resolved"


#: States of open incidents.
OPEN_STATES = (IncidentState.FIRING, IncidentState.RECOVERING)


@dataclass(frozen=True, slots=True)
class Cause:
    """Cause of an incident: with the cluster the key by which findings are grouped."""

    kind: CauseKind
    #: Id of an instance, or name of a group, region, reason or cluster.
    id: str
    #: Name for people: `proxy-1`, `region eu-west`.
    name: str

    @property
    def key(self) -> str:
        """Key of the cause, `proxy/<id>`. There is one open incident per cluster and key."""
        return f"{self.kind}/{self.id}"

    @property
    def label(self) -> str:
        """Name with its kind: `proxy web-1`, `region eu-west`. The name of a fleet-wide cause repeats the summary."""
        if self.kind is CauseKind.FLEET:
            return "no common cause"
        needs_kind = self.kind in (CauseKind.AUTH, CauseKind.PROXY) and self.kind.value not in self.name
        return f"{self.kind.value} {self.name}" if needs_kind else self.name


def is_console_cause(key: str) -> bool:
    """Return whether the cause with this key is Refloat itself."""
    return key.startswith(f"{CauseKind.CONSOLE.value}/")


@dataclass(frozen=True, slots=True)
class RuleSignal:
    """What one rule found for one cause."""

    rule_name: str
    severity: Severity
    count: int
    summary: str
    #: The rule only counts agents of an agent set.
    is_agent_set_scoped: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """What all rules found for one cause in one evaluation."""

    cause: Cause
    signals: tuple[RuleSignal, ...]
    #: Number of affected agents now.
    affected_count: int = 0
    #: Names of the first ten affected agents.
    agent_names: tuple[str, ...] = ()
    #: Time at which the last agent recovers automatically; None if not known.
    recovers_at: float | None = None
    #: Some agents recover only after the cause recovers.
    is_stuck: bool = False
    #: The cause reports that it is recovering.
    is_cause_recovering: bool = False
    #: An expired proxy that responds and whose auth is not known: any failing auth explains it.
    is_expired_only: bool = False
    #: Key of the auth that gets the heartbeats of the proxy, and key of the cause behind its failure, if another one.
    heartbeat_auth_key: str = ""
    root_cause_key: str = ""
    #: Agent sets of the affected agents.
    agent_sets: frozenset[str] = frozenset()
    #: Summary in the past tense, for when no agents are affected any more.
    past_summary: str = ""
    #: Number of stranded agents.
    stranded_count: int = 0
    #: Start of the failure, or its earliest possible time; None if not known.
    began_at: float | None = None


@dataclass(frozen=True, slots=True)
class RuleMark:
    """How long a rule has held for one cause."""

    since: float
    #: Newest poll in which the rule held, and number of consecutive polls.
    last_round_at: float
    round_count: int
    severity: Severity
    count: int
    summary: str
    #: The rule has held long enough to fire.
    is_firing: bool = False
    is_agent_set_scoped: bool = False


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident from its first finding to its end. Acknowledgements and notes of people are written elsewhere."""

    cluster: str
    cause: Cause
    #: Number of the incident among those of its cause; with the key the permanent id.
    generation: int
    state: IncidentState
    opened_at: float
    severity: Severity = Severity.INFO
    #: Start of the failure, or its earliest possible time; None if not known.
    began_at: float | None = None
    #: Start of firing, start of recovery, and end.
    fired_at: float | None = None
    recovering_since: float | None = None
    resolved_at: float | None = None
    affected_count: int = 0
    peak_count: int = 0
    agent_names: tuple[str, ...] = ()
    recovers_at: float | None = None
    #: Time at which the last affected agents had recovered; None while agents are affected, and if none were.
    affected_until: float | None = None
    is_stuck: bool = False
    #: The cause reports that it is recovering; the state of the incident follows only when nothing is wrong any more.
    is_cause_recovering: bool = False
    summary: str = ""
    #: Worst severity while firing, and summary at the peak, which the resolved incident shows.
    worst_severity: Severity | None = None
    worst_summary: str = ""
    #: Number of stranded agents at the peak.
    worst_stranded_count: int = 0
    #: Marks by name of the rule.
    marks: Mapping[str, RuleMark] = field(default_factory=dict)
    #: Names of all rules that have held long enough to fire, sorted; marks are only of rules that held last.
    fired_rule_names: tuple[str, ...] = ()
    #: Times of changes between firing and recovering.
    flap_times: tuple[float, ...] = ()
    flapping_since: float | None = None
    #: (time, affected agents), thinned out.
    trend: tuple[tuple[float, int], ...] = ()
    #: Time, severity and affected agents of the last notification that the incident is open; and the number of all.
    notified_at: float | None = None
    notified_severity: Severity | None = None
    notified_affected_count: int = 0
    notification_count: int = 0
    #: Time of the notification of an outage that had ended before its first notification was due.
    short_outage_notified_at: float | None = None
    #: Time of the escalation.
    escalated_at: float | None = None
    acknowledged_at: float | None = None
    acknowledged_by: str = ""
    #: Key of the inhibiting cause, and name of the silence; with either nothing is sent.
    inhibited_by: str = ""
    silenced_by: str = ""
    #: End of the silence, and the user who created it; empty for a maintenance window.
    silenced_until: float | None = None
    silence_creator: str = ""
    #: Agent sets of all agents that were ever affected, sorted.
    agent_sets: tuple[str, ...] = ()

    @property
    def shown_rule_names(self) -> tuple[str, ...]:
        """Names of the rules that fired, also of those that no longer match; before that, of the rules that match."""
        return self.fired_rule_names or tuple(sorted(self.marks))

    @property
    def key(self) -> str:
        """Key of the cause."""
        return self.cause.key

    @property
    def id(self) -> str:
        """Permanent id for receivers: cluster, key and generation."""
        return f"{self.cluster}/{self.key}/{self.generation}"

    @property
    def is_open(self) -> bool:
        """Whether the incident is firing or recovering."""
        return self.state in OPEN_STATES

    @property
    def is_notified(self) -> bool:
        """Whether receivers were told that the incident is open, so that they expect to be told that it is resolved."""
        return self.notified_at is not None

    def duration_seconds(self, now: float) -> float:
        """Return the seconds from the first finding to the start of the recovery, or to `now`."""
        ended_at = self.resolved_at or now
        if self.recovering_since is not None:
            ended_at = self.recovering_since
        return max(0.0, ended_at - self.opened_at)


class NotificationKind(StrEnum):
    """Reason for a notification."""

    FIRING = "firing"
    WORSE = "worse"
    UPDATE = "update"
    FLAPPING = "flapping"
    REPEAT = "repeat"
    ESCALATED = "escalated"
    #: The only notification of an outage that had ended before its first notification was due.
    SHORT_OUTAGE = "short-outage"
    ACKNOWLEDGED = "acknowledged"
    UNACKNOWLEDGED = "unacknowledged"
    RECOVERING = "recovering"
    RECURRED = "recurred"
    #: The severity changed without a notification of the kind `worse`: it decreased, or is again what was notified.
    SEVERITY = "severity"
    SILENCED = "silenced"
    UNSILENCED = "unsilenced"
    RESOLVED = "resolved"
    TEST = "test"
    DIGEST = "digest"
    SILENCE_ENDS = "silence-ends"


#: Notifications that only channels receive that update the notification of an incident in place.
UPDATE_IN_PLACE_KINDS = frozenset(
    {
        NotificationKind.UNACKNOWLEDGED,
        NotificationKind.RECOVERING,
        NotificationKind.RECURRED,
        NotificationKind.SEVERITY,
        NotificationKind.SILENCED,
        NotificationKind.UNSILENCED,
    }
)
#: Notifications that are not counted: their key has a time instead of a number.
_UNCOUNTED_KINDS = UPDATE_IN_PLACE_KINDS | {NotificationKind.ACKNOWLEDGED}


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification to send about an incident."""

    kind: NotificationKind
    incident: Incident
    at: float
    #: Number of the notification of its incident.
    number: int
    #: What strands the agents of the incident now, if that is another incident, as a clause; empty: nothing does.
    moved_agents: str = ""

    @property
    def key(self) -> str:
        """Deduplication key, the same for every attempt."""
        if self.kind in _UNCOUNTED_KINDS:
            return f"{self.incident.id}/{self.kind}-{int(self.at * 1000)}"
        return f"{self.incident.id}/{self.number}"


class TimelineKind(StrEnum):
    """Kind of a timeline entry of an incident."""

    FIRING = "firing"
    RECURRED = "recurred"
    RECOVERING = "recovering"
    RESOLVED = "resolved"
    SEVERITY = "severity"
    FLAPPING = "flapping"
    STABLE = "stable"
    NOTIFICATION = "notification"
    ESCALATED = "escalated"
    #: A notification was sent to a channel, or failed.
    DELIVERY = "delivery"
    #: Actions of people, and the coming end of a silence.
    ACKNOWLEDGED = "acknowledged"
    UNACKNOWLEDGED = "unacknowledged"
    SILENCED = "silenced"
    SILENCE_EXTENDED = "extended"
    SILENCE_ENDED = "unsilenced"
    SILENCE_ENDS = "silence ends"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A timeline entry of an incident."""

    at: float
    kind: TimelineKind
    text: str
