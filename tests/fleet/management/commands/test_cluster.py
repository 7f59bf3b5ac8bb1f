from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from fleet.models.changes import AuditEntry
from fleet.models.clusters import Cluster, ensure_default_cluster

pytestmark = pytest.mark.django_db


def _run_command(*arguments: str) -> str:
    out = io.StringIO()
    call_command("cluster", *arguments, stdout=out)
    return out.getvalue()


def test_set_changes_and_list_shows_the_review_setting() -> None:
    """Other settings stay, and the audit log has the old and the new value."""
    ensure_default_cluster()
    assert "review required: yes" in _run_command("set", "default", "--require-review", "yes")
    assert "production: no  review required: yes" in _run_command("list")
    assert Cluster.objects.get().review_required
    entry = AuditEntry.objects.get(action="cluster.set")
    assert (entry.before["review_required"], entry.after["review_required"]) == (False, True)


def test_set_of_unknown_cluster_is_refused() -> None:
    """The error names the cluster, and nothing changes."""
    with pytest.raises(CommandError, match="Cluster eu was not found"):
        call_command("cluster", "set", "eu", "--production", "yes")
