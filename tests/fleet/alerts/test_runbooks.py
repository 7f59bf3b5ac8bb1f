from __future__ import annotations

from fleet.alerts.rules import DEFAULT_RULES, RuleKind
from fleet.alerts.runbooks import RUNBOOKS


def test_stranded_agents_runbook_covers_auths_and_proxies() -> None:
    """The mitigations for a sick auth and a sick proxy differ."""
    mitigation = RUNBOOKS[RuleKind.STRANDED].mitigation
    assert [line.partition(":")[0] for line in mitigation[:2]] == ["Auth", "Proxy"]


def test_runbooks_use_the_words_of_the_pages() -> None:
    """Pages say excess tunnels and heartbeats; agents have no announcements or resources there."""
    text = " ".join(
        line
        for runbook in RUNBOOKS.values()
        for line in (runbook.meaning, *runbook.diagnosis, *runbook.mitigation)
    )
    other_terms = ("surplus", "announcement", "announced", "resources")
    assert not [term for term in other_terms if term in text]
    assert "after a failover, or because graceful tunnel closing is off" in RUNBOOKS[RuleKind.EXCESS].meaning


def test_every_rule_kind_has_a_runbook() -> None:
    """With diagnosis and mitigation steps that are sentences."""
    assert set(RUNBOOKS) == set(RuleKind) >= {rule.kind for rule in DEFAULT_RULES}
    for runbook in RUNBOOKS.values():
        assert runbook.diagnosis
        assert all(
            line.endswith((".", "?")) for line in (runbook.meaning, *runbook.diagnosis, *runbook.mitigation)
        )
