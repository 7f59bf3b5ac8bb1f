from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dashboards.shared.instance_states import ShownInstanceState, find_stranding_instances, shown_state_of
from fleet.monitoring.views import FleetTable
from fleet.protocol.destination.health import DrainRequest, Health
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, State
from tests.fakes.headline_fleets import HarmedAgents, table_with
from tests.fakes.reader import FakeReader
from tests.fakes.small_fleet import (
    AUTH_1,
    AUTH_2,
    DEREGISTERED,
    EXPIRED,
    NOW,
    OK,
    PROXY_1,
    PROXY_2,
    SILENT,
    UNHEALTHY,
)

#: The auth responds, and its resource has expired because it lost its backend.
CUT_OFF_AND_EXPIRED = {**UNHEALTHY, **EXPIRED}


@pytest.mark.parametrize(
    ("state", "health", "is_draining", "label", "css_class"),
    [
        (InstanceState.OK, Health.HEALTHY, False, "OK", "instance-ok"),
        (InstanceState.OK, Health.DEGRADED, False, "degraded", "state-degraded"),
        (InstanceState.OK, Health.UNHEALTHY, False, "unhealthy", "state-degraded"),
        (InstanceState.OK, Health.HEALTHY, True, "draining", "state-working"),
        (InstanceState.OK, Health.DEGRADED, True, "degraded, draining", "state-degraded"),
        (InstanceState.SILENT, Health.DEGRADED, True, "not responding", "instance-silent"),
        (InstanceState.UNKNOWN, Health.UNKNOWN, True, "unknown", "instance-unknown"),
    ],
)
def test_shown_state_is_what_an_instance_declares_unless_it_fails(
    state: InstanceState, health: Health, is_draining: bool, label: str, css_class: str
) -> None:
    """An instance that reports that it is degraded is not shown as OK."""
    view = FakeReader(as_of=NOW).instances("default", NOW)[2]
    drain_request = DrainRequest("", NOW) if is_draining else None
    shown_state = shown_state_of(
        replace(view, state=state, health=health, drain_request=drain_request), is_stranding=False
    )
    assert (shown_state.label, shown_state.css_class) == (label, css_class)


@pytest.mark.parametrize(
    ("auth_changes", "label", "symbol"),
    [
        (UNHEALTHY, "lost its backend", "unhealthy"),
        (CUT_OFF_AND_EXPIRED, "lost its backend", "unhealthy"),
        ({**UNHEALTHY, "readyz": 400}, "recovering", "unhealthy"),
        ({**UNHEALTHY, "readyz": None}, "unhealthy", "unhealthy"),
        (EXPIRED, "expired", "expired"),
        (SILENT, "not responding", "silent"),
        (DEREGISTERED, "deregistered", "gone"),
        (OK, "OK", "ok"),
    ],
)
def test_a_fault_has_one_word(auth_changes: Mapping[str, Any], label: str, symbol: str) -> None:
    """That of the headline, although the technical state changes while the fault lasts."""
    view = table_with(auth_1=auth_changes).instances[AUTH_1]
    assert shown_state_of(view, is_stranding=False) == ShownInstanceState(label, symbol, f"instance-{symbol}")


@pytest.mark.parametrize(
    ("cause", "label"),
    [
        ("", "cannot send heartbeats"),
        ("uuid-auth-1", "fails with its auth"),
        ("backend/default", "fails with backend"),
    ],
)
def test_proxy_that_fails_because_of_another_instance_says_so(cause: str, label: str) -> None:
    """Also once its resource has expired."""
    for changes in (UNHEALTHY, CUT_OFF_AND_EXPIRED):
        view = replace(table_with(proxy_1=changes).instances[PROXY_1], cause=cause)
        assert shown_state_of(view, is_stranding=False).label == label
    silent_view = replace(table_with(proxy_1=SILENT).instances[PROXY_1], cause=cause)
    assert shown_state_of(silent_view, is_stranding=False).label == "not responding"


def _with_stranded_agents(table: FleetTable, *indices: int) -> FleetTable:
    views = {
        index: replace(view, counts={State.STRANDED: int(index in indices)})
        for index, view in table.instances.items()
    }
    return replace(table, instances=views)


def test_instance_that_strands_agents_is_as_red_as_they_are() -> None:
    """By symbol and colours; one that only puts agents at risk, or that is OK again, is not."""
    table = table_with(
        HarmedAgents(1, State.STRANDED, AUTH_1),
        HarmedAgents(1, State.STRANDED, PROXY_2),
        HarmedAgents(1, State.STRANDED, NO_CAUSE),
        HarmedAgents(1, State.AT_RISK, PROXY_1),
        auth_1=UNHEALTHY,
        proxy_1=UNHEALTHY,
    )
    assert find_stranding_instances(table) == {AUTH_1}
    assert shown_state_of(table.instances[AUTH_1], is_stranding=True) == ShownInstanceState(
        "lost its backend", "stranded", "state-stranded"
    )


def test_auths_strand_their_agents_when_they_lost_the_backend() -> None:
    """An auth without stranded agents stays amber, and so do proxies: the backend is the cause."""
    table = table_with(
        HarmedAgents(2, State.STRANDED, BACKEND_CAUSE), auth_1=UNHEALTHY, auth_2=UNHEALTHY, proxy_1=UNHEALTHY
    )
    assert find_stranding_instances(_with_stranded_agents(table, AUTH_1, PROXY_1)) == {AUTH_1}
    assert find_stranding_instances(_with_stranded_agents(table, AUTH_1, AUTH_2)) == {AUTH_1, AUTH_2}


def test_old_data_strands_nobody() -> None:
    """The states of all agents are then unknown."""
    table = table_with(HarmedAgents(1, State.STRANDED, AUTH_1), auth_1=UNHEALTHY)
    assert find_stranding_instances(replace(table, stale=True)) == frozenset()
