"""What one evaluation knows about time and rules. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.alerts.rules import Rule, RuleKind
from fleet.vocabulary.incidents import Incident, RuleMark, Severity

#: Stands in for a rule that was deleted while its incident is open.
DELETED_RULE = Rule("deleted", RuleKind.STRANDED, Severity.WARNING)


@dataclass(frozen=True, slots=True)
class EvaluationContext:
    """One evaluation of a cluster."""

    now: float
    #: Time of the newest poll of the fleet; identifies the poll.
    newest_round_at: float
    #: Rules by name.
    rules: Mapping[str, Rule]

    def strongest_rule(self, incident: Incident) -> Rule:
        """Return the rule whose intervals apply to an incident: the most severe one that fires."""
        rule_names = [rule_name for rule_name, mark in incident.marks.items() if mark.is_firing] or list(
            incident.marks
        )
        rules = [self.rules[rule_name] for rule_name in rule_names if rule_name in self.rules]
        return max(rules, key=lambda rule: rule.severity, default=DELETED_RULE)


def is_settled(mark: RuleMark, rule: Rule) -> bool:
    """Return whether further polls do not count, so that a mark that only waits for time is not written at each one."""
    return mark.is_firing or mark.round_count >= rule.pending_rounds
