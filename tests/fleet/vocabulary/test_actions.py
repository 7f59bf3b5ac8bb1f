"""The actions of the audit log."""

from __future__ import annotations

import re

import pytest

from fleet.models.changes import AuditEntry
from fleet.vocabulary.actions import (
    AUDITED_STATES,
    MAX_ACTION_LENGTH,
    AuditAction,
    ChangeStep,
    RequestOrigin,
    action_of_change,
    action_of_request,
)
from fleet.vocabulary.changes import TRANSITIONS, ChangeKind, ChangeState
from tests.meta.house import ROOT, tracked_paths

#: The module that has words for actions.
SENTENCES = "dashboards/changes/audit_sentences.py"
#: Modules that name an action to read its rows.
READERS = {
    AuditAction.AGENT_RETIRE: {"dashboards/fleet/retire.py"},
    AuditAction.AGENT_REINSTATE: {"dashboards/fleet/retire.py"},
    AuditAction.NETWORKING_EXTERNAL_WRITE: {"dashboards/alerts/prior_changes.py"},
}


def test_action_of_a_change_is_its_kind_and_a_word() -> None:
    """A step of people, or the state that it moved to."""
    assert action_of_change(ChangeKind.POLICY, ChangeStep.CONFIRM) == "policy.confirm"
    assert action_of_change("reconnect", ChangeState.PAUSED) == "reconnect.paused"


def test_action_of_a_request_is_its_route() -> None:
    """Words that are empty are left out; it is never longer than its column."""
    assert action_of_request(RequestOrigin.PAGE, ("incident", "acknowledge")) == "page.incident.acknowledge"
    assert action_of_request(RequestOrigin.API, ("confirm_change", "")) == "api.confirm_change"
    assert len(action_of_request(RequestOrigin.PAGE, ("x" * 100, "y"))) == MAX_ACTION_LENGTH
    assert AuditEntry._meta.get_field("action").max_length == MAX_ACTION_LENGTH


def test_every_reachable_state_is_logged() -> None:
    """Except for states that people set by a step of their own."""
    moved_to = frozenset().union(*TRANSITIONS.values())
    assert moved_to - AUDITED_STATES == {ChangeState.CONFIRMED}
    assert moved_to >= AUDITED_STATES


@pytest.mark.parametrize("action", AuditAction)
def test_action_fits_its_column(action: AuditAction) -> None:
    """And is of two words, so that the log has words for it: dashboards/changes/audit_text.py."""
    subject, dot, verb = action.value.partition(".")
    assert subject
    assert dot
    assert verb
    assert len(action.value) <= MAX_ACTION_LENGTH


@pytest.mark.parametrize("action", AuditAction)
def test_each_action_is_written_by_one_module_of_fleet(action: AuditAction) -> None:
    """So that no page, command or API route can run an action without logging it."""
    pattern = re.compile(rf"\bAuditAction\.{action.name}\b")
    modules = {path for path in _modules("fleet/", "dashboards/") if pattern.search(_text(path))}
    (writer,) = modules - {"fleet/vocabulary/actions.py", SENTENCES} - READERS.get(action, set())
    assert writer.startswith("fleet/")


def test_dashboards_write_no_audit_rows_themselves() -> None:
    """Except for requests that reached no action."""
    import_pattern = re.compile(
        r"^from fleet(?:\.audit)? import .*\b(?:audit|record|attempted|Attempt)\b", re.MULTILINE
    )
    assert [path for path in _modules("dashboards/") if import_pattern.search(_text(path))] == [
        "dashboards/shared/request_log.py"
    ]


def _modules(*folders: str) -> list[str]:
    return [path for path in tracked_paths() if path.startswith(folders) and path.endswith(".py")]


def _text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")
