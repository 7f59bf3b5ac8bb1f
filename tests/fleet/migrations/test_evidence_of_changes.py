"""Changes of earlier versions have no evidence, and keep everything else: `0035_evidence_of_changes.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.models import AgentChange, InstanceChange
from fleet.models.history import AGENT_CHANGE_TABLE
from fleet.models.partitions import day_of, ensure_partitions
from tests.fleet.migrations.rows import Apps, create_row, newest_migration

pytestmark = pytest.mark.django_db(transaction=True)

_OLD = "0034_agent_sets"
_AT = 1_700_000_000.5


def test_old_changes_have_no_evidence(migrate: Callable[[str], Apps]) -> None:
    """Not recorded is not the same as nothing; and back and forward again."""
    apps = migrate(_OLD)
    cluster, _ = apps.get_model("fleet", "Cluster").objects.get_or_create(id="default")
    agent = create_row(apps, "Agent", cluster=cluster, agent_id="a", name="n", position=0)
    ensure_partitions(AGENT_CHANGE_TABLE, {day_of(_AT)})
    create_row(
        *(apps, "AgentChange"), agent_id=agent.pk, at=_AT, cause=0, old=0, new=3, reason=4, recovery=2
    )
    create_row(apps, "InstanceChange", cluster=cluster, instance="p", old="ok", new="silent", at=_AT, round=1)

    for _ in range(2):
        migrate(newest_migration())
        assert AgentChange.objects.values_list("agent_id", "at", "new", "evidence").get() == (
            *(agent.pk, _AT, 3, None),
        )
        assert InstanceChange.objects.values_list("new", "evidence").get() == ("silent", None)
        migrate(_OLD)
