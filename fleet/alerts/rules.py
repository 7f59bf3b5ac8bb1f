"""Alert rules with their thresholds, and the rules that an installation begins with. Pure. docs/alerts.md, "Rules"."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.vocabulary.incidents import Severity
from fleet.vocabulary.looks import LabelledEnum


class RuleKind(LabelledEnum):
    """What a rule looks at."""

    STRANDED = "stranded", "Agents stranded by one cause"
    AT_RISK = "at-risk", "Agents at risk by one cause"
    INSTANCE = "instance", "An auth or a proxy that is silent, unhealthy or expired"
    BACKEND = "backend", "All auths sick together: their backend"
    UNREACHABLE = "unreachable", "No instance of the cluster answers"
    RATE = "rate", "Agents lost within one minute"
    EXCESS = "excess", "Agents with more tunnels than they want"
    DRIFT = (
        "drift",
        "Instances that run with other policies than are wanted, and agents with another than most",
    )
    BLIND = "blind", "The console itself cannot see"


#: Rules that look at agents, so that a label and a share of the fleet mean something.
AGENT_KINDS = frozenset({RuleKind.STRANDED, RuleKind.AT_RISK})
#: Rules that hold from so many agents on.
THRESHOLD_KINDS = AGENT_KINDS | {RuleKind.RATE, RuleKind.EXCESS, RuleKind.DRIFT}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule with its numbers; seconds."""

    name: str
    kind: RuleKind
    severity: Severity
    enabled: bool = True
    #: It holds from so many agents on, and from this share of the cluster's; the larger of the two.
    min_count: int = 1
    min_share: float = 0.0
    #: Only agents with this label count; empty: all.
    label: str = ""
    #: The cluster that owns it; empty: the installation.
    cluster: str = ""
    #: It fires when it has held in so many rounds in a row, and for so long.
    pending_rounds: int = 2
    pending_seconds: float = 0.0
    #: Quiet for so long is resolved.
    recover_seconds: float = 300.0
    #: The first message waits for what belongs to it; further ones come no oftener; the same is said again after.
    group_wait: float = 30.0
    group_interval: float = 300.0
    repeat_seconds: float = 4 * 3600.0
    runbook: str = ""

    def threshold(self, agent_count: int) -> int:
        """From how many agents on it holds in a cluster of so many."""
        return max(self.min_count, math.ceil(self.min_share * agent_count), 1)


_WARNING_REPEAT = 12 * 3600.0

#: What an installation begins with. Names stay: they are how rows are found again.
DEFAULT_RULES: tuple[Rule, ...] = (
    Rule("Console blind", RuleKind.BLIND, Severity.CRITICAL, pending_rounds=0, recover_seconds=60.0),
    Rule("Cluster unreachable", RuleKind.UNREACHABLE, Severity.CRITICAL),
    Rule("Auth backend down", RuleKind.BACKEND, Severity.CRITICAL),
    Rule("Agents stranded", RuleKind.STRANDED, Severity.CRITICAL, min_count=5, min_share=0.005),
    Rule("Critical agent stranded", RuleKind.STRANDED, Severity.CRITICAL, label="critical"),
    Rule(
        "Few agents stranded", RuleKind.STRANDED, Severity.WARNING,
        pending_seconds=600.0, repeat_seconds=_WARNING_REPEAT,
    ),
    Rule(
        "Agents at risk", RuleKind.AT_RISK, Severity.WARNING,
        min_count=5, min_share=0.005, pending_seconds=60.0, repeat_seconds=_WARNING_REPEAT,
    ),
    Rule(
        "Auth or proxy sick", RuleKind.INSTANCE, Severity.WARNING,
        pending_seconds=60.0, repeat_seconds=_WARNING_REPEAT,
    ),
    Rule("Agents lost fast", RuleKind.RATE, Severity.CRITICAL, min_count=5, min_share=0.01, repeat_seconds=86400.0),
    Rule("Excess tunnels", RuleKind.EXCESS, Severity.INFO, min_share=0.01, pending_seconds=3600.0),
    Rule("Policy drift", RuleKind.DRIFT, Severity.INFO, min_share=0.01, pending_seconds=3600.0),
)  # fmt: skip


def effective_rules(rules: Iterable[Rule], cluster: str) -> tuple[Rule, ...]:
    """Return the rules that hold in a cluster: its own, and the installation's that it does not override by name."""
    rules = tuple(rules)
    own = {rule.name for rule in rules if rule.cluster == cluster}
    return tuple(
        rule for rule in rules if rule.cluster == cluster or (not rule.cluster and rule.name not in own)
    )
