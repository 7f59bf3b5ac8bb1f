"""Alert rules with their thresholds, and the built-in rules. Pure. docs/reference/alerts.md, "Alert rules"."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.protocol.durations import format_readable
from fleet.vocabulary.enum_types import LabelledEnum
from fleet.vocabulary.incidents import Severity


class RuleKind(LabelledEnum):
    """The condition of an alert rule."""

    STRANDED = "stranded", "Agents stranded by one cause"
    AT_RISK = "at-risk", "Agents at risk by one cause"
    INSTANCE = "instance", "Auth or proxy not responding, unhealthy or expired"
    BACKEND = "backend", "Auth backend down: all auths failed at the same time"
    UNREACHABLE = "unreachable", "Cluster unreachable: no instance responds"
    RATE = "rate", "Agents lost within one minute"
    EXCESS = "excess", "Agents with excess tunnels"
    DRIFT = (
        "drift",
        "Policy drift: instances that differ from desired policies, agents with an uncommon reconnect mode",
    )
    BLIND = "blind", "Refloat receives no monitoring data"
    IDENTITY = "identity", "The identity of Refloat for a cluster expires soon"


#: Kinds that count agents by cause, so that an agent set and a share apply.
AGENT_KINDS = frozenset({RuleKind.STRANDED, RuleKind.AT_RISK})
#: Kinds with a threshold in agents.
THRESHOLD_KINDS = AGENT_KINDS | {RuleKind.RATE, RuleKind.EXCESS, RuleKind.DRIFT}


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert rule; times in seconds."""

    name: str
    kind: RuleKind
    severity: Severity
    enabled: bool = True
    #: Minimum number and minimum share (0 to 1) of agents; both must be reached.
    min_count: int = 1
    min_share: float = 0.0
    #: Only agents of this agent set count; empty: all agents.
    agent_set: str = ""
    #: Cluster that owns the rule; empty: the whole installation.
    cluster: str = ""
    #: The rule fires after it has held in so many consecutive polls and for so many seconds.
    pending_rounds: int = 2
    pending_seconds: float = 0.0
    #: Seconds without findings after which the incident resolves.
    recover_seconds: float = 300.0
    #: Group wait before the first notification, minimum interval of updates, and repeat interval.
    group_wait: float = 30.0
    group_interval: float = 300.0
    repeat_seconds: float = 4 * 3600.0
    runbook: str = ""

    def threshold(self, agent_count: int) -> int:
        """Return the minimum number of agents for a cluster of `agent_count` agents."""
        return max(self.min_count, math.ceil(self.min_share * agent_count), 1)


#: Largest number of agents, polls or seconds (30 years); fits every database.
MAX_RULE_NUMBER = 1_000_000_000
#: Maximum length of texts, characters, as in the database.
MAX_RULE_NAME_LENGTH, MAX_AGENT_SET_LENGTH, MAX_RUNBOOK_LENGTH, MAX_CLUSTER_LENGTH = 100, 64, 200, 64
_NUMBER_FIELDS = (
    "min_count", "pending_rounds", "pending_seconds", "recover_seconds", "group_wait", "group_interval",
    "repeat_seconds",
)  # fmt: skip


def find_rule_problems(rule: Rule) -> dict[str, str]:
    """Return what is wrong with the values of a rule: a sentence for each field."""
    problems = {
        field: f"The value must be between 0 and {MAX_RULE_NUMBER}."
        for field in _NUMBER_FIELDS
        if not 0 <= getattr(rule, field) <= MAX_RULE_NUMBER
    }
    if not 0 < len(rule.name) <= MAX_RULE_NAME_LENGTH or not rule.name.isprintable():
        problems["name"] = f"A name of 1 to {MAX_RULE_NAME_LENGTH} printable characters is required."
    if not 0 <= rule.min_share <= 1:
        problems["min_share"] = "The share must be between 0 and 1 (100 %)."
    if len(rule.agent_set) > MAX_AGENT_SET_LENGTH or not rule.agent_set.isprintable():
        problems["agent_set"] = f"The agent set has at most {MAX_AGENT_SET_LENGTH} printable characters."
    # Pages link to the runbook, so only http(s) URLs are accepted, never `javascript:`.
    is_safe_link = not rule.runbook or rule.runbook.startswith(("https://", "http://"))
    if not is_safe_link or len(rule.runbook) > MAX_RUNBOOK_LENGTH or not rule.runbook.isprintable():
        problems["runbook"] = (
            f"The runbook must be a URL that begins with https:// or http://, with at most {MAX_RUNBOOK_LENGTH} "
            "characters."
        )
    return problems


#: What a rule of each kind waits for, as the end of `When …`.
_CONDITIONS: Mapping[RuleKind, str] = {
    RuleKind.STRANDED: "are stranded by one cause",
    RuleKind.AT_RISK: "are at risk by one cause",
    RuleKind.INSTANCE: "an auth or proxy is not responding, unhealthy or expired",
    RuleKind.BACKEND: "all auths failed at the same time",
    RuleKind.UNREACHABLE: "no instance responds",
    RuleKind.RATE: "are lost within one minute",
    RuleKind.EXCESS: "have excess tunnels",
    RuleKind.DRIFT: "have an uncommon reconnect mode, or an instance differs from its desired policies",
    RuleKind.BLIND: "Refloat receives no monitoring data",
    RuleKind.IDENTITY: "the identity of Refloat for a cluster expires soon",
}


def describe_condition(rule: Rule) -> str:
    """Return when a rule fires: `When 5 agents and 0.5 % of the cluster are stranded by one cause for 2 polls`."""
    condition = _CONDITIONS[rule.kind]
    if rule.kind in THRESHOLD_KINDS:
        noun = "agent" if rule.min_count == 1 else "agents"
        share_clause = f" and {rule.min_share * 100:g} % of the cluster" if rule.min_share else ""
        set_clause = f" of the set {rule.agent_set}" if rule.agent_set else ""
        count_clause = f"{rule.min_count} {noun}{set_clause}{share_clause}"
        if rule.min_count == 1 and rule.min_share:
            count_clause = f"{rule.min_share * 100:g} % of the agents{set_clause}"
        condition = f"{count_clause} {condition}"
        if rule.min_count == 1 and not share_clause:
            condition = condition.replace(" are ", " is ", 1).replace(" have ", " has ", 1)
    return f"When {condition}{_describe_pending_time(rule)}"


def _describe_pending_time(rule: Rule) -> str:
    """Return how long a rule must match before it fires: ` for 2 polls and 1 min`; empty without a wait."""
    parts = (
        [f"{rule.pending_rounds} poll{'s' if rule.pending_rounds != 1 else ''}"]
        if rule.pending_rounds
        else []
    )
    parts += [format_readable(round(rule.pending_seconds))] if rule.pending_seconds else []
    return f" for {' and '.join(parts)}" if parts else ""


def describe_notifications(rule: Rule) -> str:
    """Return when an incident of a rule is notified: `Notify after 30 s, again every 4 h until acknowledged`."""
    if rule.severity is Severity.INFO:
        return "Only digests list it"
    delay = f"after {format_readable(round(rule.group_wait))}" if rule.group_wait else "at once"
    return f"Notify {delay}, again every {format_readable(round(rule.repeat_seconds))} until acknowledged"


_WARNING_REPEAT_SECONDS = 12 * 3600.0

#: The built-in rules. Their names must not change: rows are found by name.
DEFAULT_RULES: tuple[Rule, ...] = (
    Rule("No monitoring data", RuleKind.BLIND, Severity.CRITICAL, pending_rounds=0, recover_seconds=60.0),
    Rule("Cluster unreachable", RuleKind.UNREACHABLE, Severity.CRITICAL),
    Rule("Auth backend down", RuleKind.BACKEND, Severity.CRITICAL),
    Rule("Agents stranded", RuleKind.STRANDED, Severity.CRITICAL, min_count=5, min_share=0.005),
    Rule("Critical agent stranded", RuleKind.STRANDED, Severity.CRITICAL, agent_set="critical"),
    Rule(
        "Few agents stranded", RuleKind.STRANDED, Severity.WARNING,
        pending_seconds=600.0, repeat_seconds=_WARNING_REPEAT_SECONDS,
    ),
    Rule(
        "Agents at risk", RuleKind.AT_RISK, Severity.WARNING,
        min_count=5, min_share=0.005, pending_seconds=60.0, repeat_seconds=_WARNING_REPEAT_SECONDS,
    ),
    Rule(
        "Auth or proxy failing", RuleKind.INSTANCE, Severity.WARNING,
        pending_seconds=60.0, repeat_seconds=_WARNING_REPEAT_SECONDS,
    ),
    Rule(
        "Identity expiring", RuleKind.IDENTITY, Severity.WARNING,
        recover_seconds=60.0, repeat_seconds=_WARNING_REPEAT_SECONDS,
    ),
    Rule("High agent loss rate", RuleKind.RATE, Severity.CRITICAL, min_count=5, min_share=0.01, repeat_seconds=86400.0),
    Rule("Excess tunnels", RuleKind.EXCESS, Severity.INFO, min_share=0.01, pending_seconds=3600.0),
    Rule("Policy drift", RuleKind.DRIFT, Severity.INFO, min_share=0.01, pending_seconds=3600.0),
)  # fmt: skip


def select_effective_rules(rules: Iterable[Rule], cluster: str) -> tuple[Rule, ...]:
    """Return the rules of a cluster: its own, and those of the whole installation that it does not override by name."""
    rules = tuple(rules)
    own_names = {rule.name for rule in rules if rule.cluster == cluster}
    return tuple(
        rule for rule in rules if rule.cluster == cluster or (not rule.cluster and rule.name not in own_names)
    )
