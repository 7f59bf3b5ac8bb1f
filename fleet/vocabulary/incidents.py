"""The words of alerting: severities, causes, findings, incidents. Pure; times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.vocabulary.looks import NumberedEnum
from fleet.vocabulary.verdicts import State


@dataclass(frozen=True, slots=True)
class SeverityLook:
    """The number of a severity, and how messages and pages show it."""

    number: int
    #: What the subject of a message begins with.
    short: str
    #: The verdict whose colours and symbol it has.
    like: State


class Severity(NumberedEnum):
    """How much it hurts. Values are in the database."""

    look: SeverityLook

    #: Never sent by itself: pages and the API show it.
    INFO = SeverityLook(0, "INFO", State.EXCESS)
    WARNING = SeverityLook(1, "WARN", State.AT_RISK)
    CRITICAL = SeverityLook(2, "CRIT", State.STRANDED)


class CauseKind(StrEnum):
    """What can be the cause of an incident, the strongest first: docs/alerts.md, "Inhibition"."""

    CONSOLE = "console"
    CLUSTER = "cluster"
    BACKEND = "backend"
    #: Auths and proxies of one region.
    REGION = "region"
    AUTH = "auth"
    GROUP = "proxy-group"
    PROXY = "proxy"
    #: Agents for whom no instance is to blame, by reason.
    AGENTS = "agents"
    #: The fleet as a whole: how fast agents are lost, excess tunnels, drift.
    FLEET = "fleet"


class IncidentState(StrEnum):
    """Where an incident is in its life."""

    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    RESOLVED = "resolved"


#: It fires, or has just become quiet.
OPEN_STATES = (IncidentState.FIRING, IncidentState.RECOVERING)


@dataclass(frozen=True, slots=True)
class Cause:
    """What an incident is about: the group key, with the cluster."""

    kind: CauseKind
    #: An instance's id, a group, a reason, or the cluster.
    id: str
    #: For people.
    name: str

    @property
    def key(self) -> str:
        """`proxy/<id>`: one open incident per cluster and key."""
        return f"{self.kind}/{self.id}"

    @property
    def label_prefix(self) -> str:
        """What its name needs before it; empty when the name says by itself what it is: `region eu-west`."""
        return self.kind.value if self.kind in (CauseKind.AUTH, CauseKind.PROXY) else ""

    @property
    def label(self) -> str:
        """`proxy proxy-1`, `region eu-west`."""
        return f"{self.label_prefix} {self.name}".lstrip()


def is_console_cause(key: str) -> bool:
    """Return whether a key names the console itself as the cause."""
    return key.startswith(f"{CauseKind.CONSOLE.value}/")


@dataclass(frozen=True, slots=True)
class RuleSignal:
    """What one rule found at one cause."""

    rule: str
    severity: Severity
    count: int
    sentence: str
    #: The rule watches agents with a label.
    is_label_scoped: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """Everything that rules found at one cause in one look."""

    cause: Cause
    signals: tuple[RuleSignal, ...]
    #: Agents it harms now.
    affected: int = 0
    #: Names of the first ten of them.
    names: tuple[str, ...] = ()
    #: When the last of them is back by itself; None when that cannot be said.
    heals_at: float | None = None
    #: Not by themselves, only when the cause recovers.
    stuck: bool = False
    #: The proxy only expired, answers, and names no auth: any auth that is down explains it.
    expired_only: bool = False
    #: Key of the auth that the proxy heartbeats through, and of what it suffers from when that is not itself.
    depends_on: str = ""
    root_cause: str = ""
    #: Labels of agents it harms.
    labels: frozenset[str] = frozenset()
    #: What it does to them, in the past tense: how the incident is called when nobody is harmed any more.
    harm: str = ""
    #: How many of the affected agents are stranded.
    stranded_count: int = 0
    #: When the cause fell sick, or at the earliest; None when that is not known.
    began_at: float | None = None


@dataclass(frozen=True, slots=True)
class RuleMark:
    """How long a rule has held at one cause."""

    since: float
    #: The newest round in which it held, and how many in a row.
    last_round: float
    round_count: int
    severity: Severity
    count: int
    sentence: str
    #: It has held for as long as its rule wants.
    is_firing: bool = False
    is_label_scoped: bool = False


@dataclass(frozen=True, slots=True)
class Incident:
    """One trouble, from its first sign to its end. What people add (acknowledged, notes) is not changed here."""

    cluster: str
    cause: Cause
    #: Counts the incidents of one cause: with the key it names this one for ever.
    generation: int
    state: IncidentState
    opened_at: float
    severity: Severity = Severity.INFO
    #: When the cause fell sick, or at the earliest; None when that is not known.
    began_at: float | None = None
    #: When it began to fire, to be quiet, and when it ended.
    fired_at: float | None = None
    quiet_since: float | None = None
    resolved_at: float | None = None
    affected: int = 0
    peak: int = 0
    names: tuple[str, ...] = ()
    heals_at: float | None = None
    stuck: bool = False
    sentence: str = ""
    #: The worst that it fired with, and how it was called when it harmed most: so it is called when it is over.
    worst_severity: Severity | None = None
    worst_sentence: str = ""
    #: How many agents were stranded then.
    worst_stranded: int = 0
    #: By rule.
    marks: Mapping[str, RuleMark] = field(default_factory=dict)
    #: Times at which it began to fire or to be quiet again.
    flips: tuple[float, ...] = ()
    flapping_since: float | None = None
    #: (at, affected), thinned.
    trend: tuple[tuple[float, int], ...] = ()
    #: The last message about it: when, and with what; how many there were.
    notified_at: float | None = None
    notified_severity: Severity | None = None
    notified_affected: int = 0
    notices: int = 0
    #: The second level was told.
    escalated_at: float | None = None
    acked_at: float | None = None
    #: Why nothing is sent: a stronger cause's key, or a silence's name.
    inhibited_by: str = ""
    silenced_by: str = ""
    #: Labels of agents that it ever harmed, sorted.
    labels: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """That of its cause."""
        return self.cause.key

    @property
    def id(self) -> str:
        """Its name for receivers, for ever."""
        return f"{self.cluster}/{self.key}/{self.generation}"

    @property
    def is_open(self) -> bool:
        """It fires, or has just become quiet."""
        return self.state in OPEN_STATES

    def duration(self, now: float) -> float:
        """Seconds from its first sign until it was quiet, or until now."""
        ended_at = self.resolved_at or now
        if self.quiet_since is not None:
            ended_at = self.quiet_since
        return max(0.0, ended_at - self.opened_at)


class NotificationKind(StrEnum):
    """Why a message is sent."""

    FIRING = "firing"
    WORSE = "worse"
    UPDATE = "update"
    FLAPPING = "flapping"
    REPEAT = "repeat"
    ESCALATED = "escalated"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    TEST = "test"
    DIGEST = "digest"
    SILENCE_ENDS = "silence-ends"


@dataclass(frozen=True, slots=True)
class Notification:
    """One message to be sent about an incident as it is now."""

    kind: NotificationKind
    incident: Incident
    at: float
    #: Counts the messages of one incident: with the incident's id it is the key receivers deduplicate by.
    number: int

    @property
    def key(self) -> str:
        """The same for every attempt to send it."""
        return f"{self.incident.id}/{self.number}"


class TimelineKind(StrEnum):
    """What a line of an incident's timeline tells."""

    FIRING = "firing"
    BACK = "back"
    RECOVERING = "recovering"
    RESOLVED = "resolved"
    FLAPPING = "flapping"
    STEADY = "steady"
    NOTICE = "notice"
    ESCALATED = "escalated"
    #: A message was taken by a channel, or could not be sent.
    DELIVERY = "delivery"
    #: What people did, and the end of a silence of theirs.
    ACKNOWLEDGED = "acknowledged"
    LET_GO = "let go"
    SILENCED = "silenced"
    SILENCE_ENDS = "silence ends"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A line of an incident's timeline."""

    at: float
    kind: TimelineKind
    text: str
