from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from fleet.models.changes import AuditEntry
from fleet.models.clusters import Cluster, ensure_default_cluster

pytestmark = pytest.mark.django_db


def _said(*words: str) -> str:
    out = io.StringIO()
    call_command("cluster", *words, stdout=out)
    return out.getvalue()


def test_set_and_list_what_changes_ask_for() -> None:
    """What is not named stays; the log has before and after."""
    ensure_default_cluster()
    assert "review required: yes" in _said("set", "default", "--require-review", "yes")
    assert "production: no  review required: yes" in _said("list")
    assert Cluster.objects.get().second_approver
    entry = AuditEntry.objects.get(action="cluster.set")
    assert (entry.before["second_approver"], entry.after["second_approver"]) == (False, True)


def test_set_unknown_cluster() -> None:
    """One line, and nothing changed."""
    with pytest.raises(CommandError, match="Cluster eu was not found"):
        call_command("cluster", "set", "eu", "--production", "yes")
