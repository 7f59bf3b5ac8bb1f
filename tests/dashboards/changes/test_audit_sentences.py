"""Entries of the audit log as sentences."""

from __future__ import annotations

import pytest

from dashboards.changes.audit_sentences import describe_entry
from fleet.vocabulary.actions import AUDITED_STATES, AuditAction, ChangeStep, action_of_change
from fleet.vocabulary.changes import ChangeKind


@pytest.mark.parametrize(
    ("action", "subject", "outcome", "text"),
    [
        ("agent.retire", "agent-66", "succeeded", "retired agent-66"),
        ("agent.retire", "agent-66", "refused", "tried to retire agent-66"),
        ("instance.undrain", "proxy-1", "succeeded", "brought proxy-1 back into service"),
        ("instance.degrade", "auth-1", "failed", "tried to mark auth-1 as degraded"),
        (
            "networking-config.confirm",
            "Set agent connection count to 2",
            "succeeded",
            "confirmed the config change “Set agent connection count to 2”",
        ),
        (
            "reconnect.paused",
            "Reconnect 3 agents",
            "succeeded",
            "paused the reconnect campaign “Reconnect 3 agents”",
        ),
        ("service.verified", "Drain proxy-1", "succeeded", "verified the service change “Drain proxy-1”"),
        ("policy.undone", "x", "succeeded", "marked the policy change “x” as undone"),
        ("alert-rule.update", "stranded", "succeeded", "updated the alert rule stranded"),
        ("user.invite", "grace", "succeeded", "invited the user account grace"),
        ("user.end-sessions", "grace", "refused", "tried to end the sessions of the user account grace"),
        ("user.role", "grace", "succeeded", "changed the role of the user account grace"),
        ("backup.restore", "a.tar.gz", "succeeded", "restored the backup a.tar.gz"),
        (
            "page.incident.acknowledge",
            "/incidents/3/",
            "succeeded",
            "requested to acknowledge incident (in the console) /incidents/3/",
        ),
        ("api.confirm_change", "/changes/3", "refused", "tried to confirm change (by API) /changes/3"),
    ],
)
def test_entry_is_a_sentence(action: str, subject: str, outcome: str, text: str) -> None:
    """With a verb in the past tense, or what the actor tried."""
    assert describe_entry(action, subject, outcome).text == text


@pytest.mark.parametrize("action", [*AuditAction], ids=str)
def test_every_action_has_a_verb(action: AuditAction) -> None:
    """In both forms."""
    assert not describe_entry(action, "x", "succeeded").verb.startswith("requested")
    assert describe_entry(action, "x", "refused").verb.startswith("tried to ")


@pytest.mark.parametrize("kind", ChangeKind)
def test_every_step_of_a_change_has_a_verb(kind: ChangeKind) -> None:
    """And every state that it moves to."""
    for step in (*ChangeStep, *AUDITED_STATES):
        sentence = describe_entry(action_of_change(kind, step), "x", "succeeded")
        assert not sentence.verb.startswith("requested"), step


@pytest.mark.parametrize(
    ("action", "document", "change_id", "path"),
    [
        ("agent.retire", {"agent": "id/1"}, 7, "/agents/id%2F1/"),
        ("instance.drain", {"instance": "p-1"}, 7, "/instances/p-1/"),
        ("policy.plan", {"auth": {}}, 7, "/changes/7/"),
        ("token.create", None, None, ""),
    ],
)
def test_object_leads_to_its_page(action: str, document: object, change_id: int | None, path: str) -> None:
    """Below the prefix of the cluster."""
    assert describe_entry(action, "x", "succeeded", change_id, document).path == path


def test_abort_has_a_verb_of_its_own() -> None:
    """Its action is that of a cancelled change; `noun` is what pages call the change."""
    sentence = describe_entry("policy.cancelled", "", "succeeded", has_started=True)
    assert sentence.text == "aborted the policy change"
    assert describe_entry("policy.cancelled", "", "succeeded").text == "cancelled the policy change"
    assert describe_entry("retire.verified", "", "succeeded", noun="reinstatement").text == (
        "verified the reinstatement"
    )
