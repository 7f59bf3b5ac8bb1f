from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fleet.alerts.headlines.actions import ACT, CONFIGURE, VIEW
from fleet.alerts.headlines.headline import describe_fleet
from fleet.models.access import Permission
from fleet.monitoring.evidence import ReconnectMode
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State
from tests.fakes.headline_fleets import HarmedAgents, table_with
from tests.fakes.small_fleet import AUTH_1, NOW, PROXY_1, SILENT, UNHEALTHY

STUCK, AUTOMATIC = Recovery.ONLY_IF_CAUSE_RECOVERS, Recovery.BY_ITSELF
NOT_SERVING = {**UNHEALTHY, "readyz": 200}


def _labels(
    cause: int,
    recovery: Recovery,
    mode: ReconnectMode = ReconnectMode.RECONNECT,
    **changes: Mapping[str, Any],
) -> tuple[list[str], list[str]]:
    agents = HarmedAgents(3, State.STRANDED, cause, recovery, Reason.NO_TUNNEL, recovers_at=NOW + 9)
    headline = describe_fleet(table_with(agents, mode=mode, **changes), (), NOW)
    return [action.label for action in headline.actions], [action.label for action in headline.preventions]


def test_permissions_exist() -> None:
    assert {VIEW, ACT, CONFIGURE} <= {permission.value for permission in Permission}


@pytest.mark.parametrize(
    ("cause", "recovery", "changes", "labels"),
    [
        (AUTH_1, STUCK, {"auth_1": UNHEALTHY}, ["Reconnect agents of auth-1"]),
        (AUTH_1, AUTOMATIC, {"auth_1": UNHEALTHY}, ["Repair auth-1"]),
        (AUTH_1, STUCK, {"auth_1": UNHEALTHY, "auth_2": {"gone_at": NOW}}, ["Repair auth-1"]),
        (AUTH_1, STUCK, {"auth_1": UNHEALTHY, "proxy_1": SILENT, "proxy_2": SILENT}, ["Repair auth-1"]),
        (PROXY_1, STUCK, {"proxy_1": SILENT}, ["Repair proxy-1"]),
        (PROXY_1, STUCK, {"proxy_1": NOT_SERVING}, ["Reconnect agents of proxy-1"]),
        (PROXY_1, STUCK, {"proxy_1": NOT_SERVING, "proxy_2": {"gone_at": NOW}}, ["Repair proxy-1"]),
        (BACKEND_CAUSE, STUCK, {"auth_1": UNHEALTHY, "auth_2": UNHEALTHY}, ["Repair the auth backend"]),
        (BACKEND_CAUSE, STUCK, {"auth_1": SILENT, "auth_2": SILENT}, ["Repair the auths"]),
        (NO_CAUSE, STUCK, {}, ["View the affected agents"]),
    ],
)
def test_action_helps_the_agents_that_are_affected_now(
    cause: int, recovery: Recovery, changes: Mapping[str, Any], labels: list[str]
) -> None:
    """A campaign only where another instance is OK and a tunnel carries the advice; the repair where agents recover."""
    assert _labels(cause, recovery, **changes)[0] == labels


def test_repair_leads_to_the_instance() -> None:
    """In the runbook of its kind; other causes have the runbook alone."""
    agents = HarmedAgents(3, State.STRANDED, PROXY_1, STUCK)
    (repair,) = describe_fleet(table_with(agents, proxy_1=SILENT), (), NOW).actions
    assert repair.path == "/alerts/runbooks/proxy/?instance=uuid-proxy-1"
    (repair,) = describe_fleet(table_with(proxy_1=SILENT), (), NOW).actions
    assert repair.path == "/alerts/runbooks/proxy/?instance=uuid-proxy-1"
    (repair,) = describe_fleet(table_with(auth_1=SILENT, auth_2=SILENT), (), NOW).actions
    assert repair.path == "/alerts/runbooks/backend/"


def test_reconnect_mode_is_expected_labels_as_prevention_only() -> None:
    """To agents that kept their connection to a failing auth; the policy does not help those that are stuck."""
    expected_labels = ["Turn on failover: agents leave an unhealthy auth"]
    assert _labels(AUTH_1, STUCK, ReconnectMode.PICK_FIRST, auth_1=UNHEALTHY)[1] == expected_labels
    # FakeReader's agents have no health check.
    assert _labels(AUTH_1, STUCK, ReconnectMode.RECONNECT, auth_1=UNHEALTHY)[1] == expected_labels
    assert _labels(AUTH_1, STUCK, ReconnectMode.UNKNOWN, auth_1=UNHEALTHY)[1] == []
    assert _labels(PROXY_1, STUCK, ReconnectMode.PICK_FIRST, proxy_1=SILENT)[1] == []


def test_repair_ends_the_failure_where_agents_recover_automatically() -> None:
    """The failure itself goes on; of an instance that is OK again, there is nothing to repair."""
    assert _labels(PROXY_1, AUTOMATIC, proxy_1=SILENT) == (["Repair proxy-1"], [])
    assert _labels(PROXY_1, STUCK, proxy_1=SILENT) == (["Repair proxy-1"], [])
    assert _labels(PROXY_1, AUTOMATIC) == ([], [])


def test_agents_with_health_check_need_no_reconnect_mode() -> None:
    agents = HarmedAgents(3, State.STRANDED, AUTH_1, AUTOMATIC, recovers_at=NOW + 9)
    table = table_with(agents, auth_1=UNHEALTHY)
    table.heartbeats["flags"] = np.uint8(1)
    headline = describe_fleet(table, (), NOW)
    assert ([action.label for action in headline.actions], headline.preventions) == (["Repair auth-1"], ())
