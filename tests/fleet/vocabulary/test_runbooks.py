from __future__ import annotations

from fleet.vocabulary.incidents import CauseKind
from fleet.vocabulary.runbooks import RUNBOOK_BY_CAUSE_KIND, RunbookCause, runbook_path_of


def test_every_kind_of_cause_has_a_runbook() -> None:
    assert set(RUNBOOK_BY_CAUSE_KIND) == set(CauseKind)


def test_path_names_the_incident_or_the_instance() -> None:
    """An instance may have any id."""
    assert runbook_path_of(RunbookCause.AGENTS) == "/alerts/runbooks/agents/"
    assert runbook_path_of(RunbookCause.AUTH, incident_number=7) == "/alerts/runbooks/auth/?incident=7"
    assert (
        runbook_path_of(RunbookCause.PROXY, instance_id="a b&c") == "/alerts/runbooks/proxy/?instance=a+b%26c"
    )
