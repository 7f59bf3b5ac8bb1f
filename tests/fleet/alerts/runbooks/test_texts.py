from __future__ import annotations

from fleet.alerts.runbooks.texts import RUNBOOKS, RemedyAction
from fleet.vocabulary.runbooks import RunbookCause


def test_every_cause_has_a_runbook_with_a_button() -> None:
    """With meaning, diagnosis and remedies that are sentences."""
    assert set(RUNBOOKS) == set(RunbookCause)
    for runbook in RUNBOOKS.values():
        lines = (runbook.meaning, *runbook.diagnosis, *(remedy.text for remedy in runbook.remedies))
        assert runbook.diagnosis
        assert all(line.endswith((".", "?")) for line in lines)
        assert any(remedy.action is not None for remedy in runbook.remedies)


def test_every_action_is_in_a_runbook_once() -> None:
    action_lists = [
        [remedy.action for remedy in runbook.remedies if remedy.action] for runbook in RUNBOOKS.values()
    ]
    assert {action for actions in action_lists for action in actions} == set(RemedyAction)
    assert all(len(actions) == len(set(actions)) for actions in action_lists)


def test_runbooks_use_the_words_of_the_pages() -> None:
    """Pages say excess tunnels and heartbeats; agents have no announcements or resources there."""
    text = " ".join(
        line
        for runbook in RUNBOOKS.values()
        for line in (runbook.meaning, *runbook.diagnosis, *(remedy.text for remedy in runbook.remedies))
    )
    other_terms = ("surplus", "announcement", "announced", "resources")
    assert not [term for term in other_terms if term in text]
    assert (
        "after a failover, or because graceful tunnel closing is off" in RUNBOOKS[RunbookCause.EXCESS].meaning
    )
