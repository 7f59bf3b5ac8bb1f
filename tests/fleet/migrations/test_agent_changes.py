"""State changes of earlier versions become rows of the compact table: `fleet/migrations/0030_copy_transitions.py`.

On SQLite here and on PostgreSQL in tests/flow.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest

from fleet.models.history import AgentChange, InstanceChange
from fleet.vocabulary.verdicts import Reason, Recovery, State
from tests.fleet.migrations.rows import Apps, create_row, newest_migration

pytestmark = pytest.mark.django_db(transaction=True)

_COPY = import_module("fleet.migrations.0030_copy_transitions")
_EARLIER = "0028_fired_rule_names"
#: The second one has a fraction that rounds up to the next second; the third one is on another day.
_MOMENTS = [
    datetime(2026, 3, 1, 23, 59, 58, tzinfo=UTC),
    datetime(2026, 3, 1, 23, 59, 58, 999_600, tzinfo=UTC),
    datetime(2026, 3, 2, 0, 0, 5, 123_456, tzinfo=UTC),
]


def _create_rows(apps: Apps) -> dict[str, Any]:
    cluster = create_row(apps, "Cluster", id="default")
    agent = create_row(apps, "Agent", cluster=cluster, agent_id="a1", name="agent-1", position=0)
    proxy = create_row(
        apps, "Instance", cluster=cluster, instance_id="p1", kind="proxy", name="proxy-1", position=0
    )
    states = ("unknown", "healthy", "at_risk", "stranded")
    causes = ("", "p1", "backend/default")
    for number, (at, cause) in enumerate(zip(_MOMENTS, causes, strict=True)):
        create_row(
            apps, "Transition", cluster=cluster, agent="a1", at=at, round=number, cause=cause, old=states[number],
            new=states[number + 1], reason="instance-degraded", recovery="only-if-cause-recovers",
        )  # fmt: skip
    create_row(
        apps, "Transition", cluster=cluster, agent="forgotten", at=_MOMENTS[0], round=1, old="healthy", new="stranded",
        reason="none", recovery="unclear", cause="no-such-instance",
    )  # fmt: skip
    create_row(
        apps, "InstanceTransition", cluster=cluster, instance="p1", old="ok", new="silent", at=_MOMENTS[1], round=7
    )
    return {"agent": agent, "proxy": proxy}


def test_state_changes_are_copied_and_come_back(
    migrate: Callable[[str], Apps], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches, with keys, to the millisecond. Moves are not copied back, because the earlier table has no place."""
    monkeypatch.setattr(_COPY, "_BATCH_SIZE", 2)
    earlier = migrate(_EARLIER)
    rows = _create_rows(earlier)

    migrate(newest_migration())

    changes = list(AgentChange.objects.order_by("at"))
    start = _MOMENTS[0].timestamp()
    assert [(change.agent_id, round(change.at - start, 3)) for change in changes] == [
        (rows["agent"].pk, 0.0),
        (rows["agent"].pk, 1.0),
        (rows["agent"].pk, 7.123),
    ]
    assert [(change.old, change.new) for change in changes] == [
        (State.UNKNOWN, State.HEALTHY),
        (State.HEALTHY, State.AT_RISK),
        (State.AT_RISK, State.STRANDED),
    ]
    assert [change.cause for change in changes] == [0, rows["proxy"].pk, -1]
    for change in changes:
        assert (change.reason, change.recovery) == (Reason.INSTANCE_DEGRADED, Recovery.ONLY_IF_CAUSE_RECOVERS)
        assert (change.auth, change.proxies, change.recovers_at) == (None, None, None)
    turn = InstanceChange.objects.get()
    assert (turn.instance, turn.old, turn.new, turn.health, turn.is_draining) == ("p1", "ok", "silent", "", None)
    assert turn.at == pytest.approx(_MOMENTS[1].timestamp(), abs=1e-6)
    moved_at = start + 60
    AgentChange.objects.create(
        agent_id=rows["agent"].pk, at=moved_at, old=3, new=3, reason=0, recovery=0, cause=0, auth=1, proxies=b""
    )

    earlier = migrate(_EARLIER)

    restored = earlier.get_model("fleet", "Transition").objects.order_by("at")
    rounded = [_MOMENTS[0], _MOMENTS[0] + timedelta(seconds=1), _MOMENTS[2].replace(microsecond=123_000)]
    assert list(restored.values_list("agent", "at", "old", "new", "cause")) == [
        ("a1", rounded[0], "unknown", "healthy", ""),
        ("a1", rounded[1], "healthy", "at_risk", "p1"),
        ("a1", rounded[2], "at_risk", "stranded", "backend/default"),
    ]
    # Django's own text: filters of SQLite compare texts.
    assert restored.filter(at=rounded[2], reason="instance-degraded").count() == 1
    assert earlier.get_model("fleet", "InstanceTransition").objects.get().round == 7
