from __future__ import annotations

from fleet.alerts.rules import DEFAULT_RULES, RuleKind
from fleet.alerts.runbooks import RUNBOOKS


def test_stranded_agents_have_a_cure_for_each_kind_of_cause() -> None:
    """An auth strands its agents while their tunnels work: what helps against a sick proxy does not help them."""
    helps = RUNBOOKS[RuleKind.STRANDED].mitigation
    assert [line.partition(":")[0] for line in helps[:2]] == ["Auth", "Proxy"]


def test_every_kind_of_rule_has_a_runbook() -> None:
    """Whoever is woken by any rule finds what to look at and what helps."""
    assert set(RUNBOOKS) == set(RuleKind) >= {rule.kind for rule in DEFAULT_RULES}
    for runbook in RUNBOOKS.values():
        assert runbook.diagnosis
        assert all(
            line.endswith((".", "?")) for line in (runbook.meaning, *runbook.diagnosis, *runbook.mitigation)
        )
