from __future__ import annotations

import pytest

from fleet.alerts.rules import RuleKind
from fleet.alerts.runbooks.choice import (
    RUNBOOKS_BY_RULE_KIND,
    RunbookFacts,
    choose_runbook,
    choose_runbook_of_rule_kind,
)
from fleet.vocabulary.incidents import Cause, CauseKind
from fleet.vocabulary.instances import InstanceKind
from fleet.vocabulary.runbooks import RunbookCause
from fleet.vocabulary.verdicts import Reason


@pytest.mark.parametrize(
    ("kind", "cause_id", "runbook", "with_new_version"),
    [
        (CauseKind.CONSOLE, "default", "console", "console"),
        (CauseKind.CLUSTER, "default", "cluster", "cluster"),
        (CauseKind.BACKEND, "default", "backend", "backend"),
        (CauseKind.REGION, "eu-west", "region", "version"),
        (CauseKind.AUTH, "uuid-1", "auth", "version"),
        (CauseKind.GROUP, "blue", "proxy", "version"),
        (CauseKind.PROXY, "uuid-2", "proxy", "version"),
        (CauseKind.AGENTS, "none", "agents", "version"),
        (CauseKind.AGENTS, "no-tunnel", "agents", "version"),
        (CauseKind.AGENTS, "resource-expired", "agents", "version"),
        (CauseKind.AGENTS, "auth-unhealthy", "auth", "version"),
        (CauseKind.AGENTS, "policy-off", "auth", "version"),
        (CauseKind.AGENTS, "proxy-expired", "proxy", "version"),
        (CauseKind.AGENTS, "backend-down", "backend", "backend"),
        (CauseKind.AGENTS, "cluster-unreachable", "cluster", "cluster"),
        (CauseKind.AGENTS, "stale", "console", "console"),
        (CauseKind.FLEET, "rate", "agents", "version"),
        (CauseKind.FLEET, "excess", "excess", "excess"),
        (CauseKind.FLEET, "drift", "drift", "drift"),
        (CauseKind.FLEET, "policies", "drift", "drift"),
    ],
)
def test_cause_has_its_runbook(kind: CauseKind, cause_id: str, runbook: str, with_new_version: str) -> None:
    """A new version explains instances and agents, but nothing that many instances share."""
    cause = Cause(kind, cause_id, "name")
    assert choose_runbook(RunbookFacts(cause)) == runbook
    assert choose_runbook(RunbookFacts(cause, has_new_version=True)) == with_new_version


def test_every_reason_has_a_runbook() -> None:
    for reason in Reason:
        assert choose_runbook(RunbookFacts(Cause(CauseKind.AGENTS, reason.slug, "agents"))) in RunbookCause


def test_every_rule_kind_has_runbooks_and_every_runbook_a_rule_kind() -> None:
    assert set(RUNBOOKS_BY_RULE_KIND) == set(RuleKind)
    assert {cause for causes in RUNBOOKS_BY_RULE_KIND.values() for cause in causes} == set(RunbookCause)


@pytest.mark.parametrize(
    ("kind", "instance_kind", "runbook"),
    [
        (RuleKind.STRANDED, InstanceKind.AUTH, "auth"),
        (RuleKind.AT_RISK, InstanceKind.PROXY, "proxy"),
        (RuleKind.INSTANCE, None, None),
        (RuleKind.STRANDED, None, None),
        (RuleKind.BACKEND, None, "backend"),
        (RuleKind.UNREACHABLE, None, "cluster"),
        (RuleKind.RATE, None, "agents"),
        (RuleKind.EXCESS, None, "excess"),
        (RuleKind.DRIFT, None, "drift"),
        (RuleKind.BLIND, None, "console"),
    ],
)
def test_old_address_has_a_runbook(
    kind: RuleKind, instance_kind: InstanceKind | None, runbook: str | None
) -> None:
    """Unless the kind of rule has several and no instance tells which."""
    assert choose_runbook_of_rule_kind(kind, instance_kind) == runbook
