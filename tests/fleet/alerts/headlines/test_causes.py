from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fleet.alerts.headlines.causes import find_causes
from fleet.monitoring.classify import instance_state, prepare_frame
from fleet.monitoring.columns import VERDICT
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import InstanceKind
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, State
from tests.fakes.reader import FakeReader
from tests.fakes.small_fleet import (
    AUTH_1,
    DEREGISTERED,
    EXPIRED,
    NOW,
    PROXY_1,
    PROXY_2,
    SILENT,
    UNHEALTHY,
    fleet,
    instance,
)


def table_of(*more: tuple[str, Mapping[str, Any]], **changes_by_name: Mapping[str, Any]) -> FleetTable:
    """Return a table of the small fleet with these changes to its instances, and with `more` proxies."""
    evidence = fleet(**changes_by_name)
    instances = dict(evidence.instances)
    for name, changes in more:
        instances[len(instances)] = instance(len(instances), InstanceKind.PROXY, name, **changes)
    evidence = replace(evidence, instances=instances)
    frame = prepare_frame(evidence, NOW)
    causes = {index: frame.cause_of(index) for index in instances}
    names = {BACKEND_CAUSE: "backend/default", **{index: facts.id for index, facts in instances.items()}}
    views = {
        index: InstanceView(
            *(facts, instance_state(facts, NOW, evidence.timing), "", 0, {}),
            cause="" if causes[index] == index else names[causes[index]],
        )
        for index, facts in instances.items()
    }
    return replace(
        FakeReader([State.HEALTHY], as_of=NOW).table("default", NOW), instances=views, fleet=evidence
    )


def with_verdicts(table: FleetTable, *verdicts: tuple[State, int]) -> FleetTable:
    """Return the table with agents of these states and indices of causes."""
    rows = np.zeros(len(verdicts), VERDICT)
    rows["state"], rows["cause"] = [state for state, _ in verdicts], [index for _, index in verdicts]
    return replace(table, verdicts=rows)


def agent_states_by_name(table: FleetTable) -> dict[str, frozenset[State]]:
    """Return the states of the affected agents by the first word of each clause."""
    return {cause.clause.present.split()[0]: frozenset(cause.groups) for cause in find_causes(table)}


def describe_causes(table: FleetTable) -> list[str]:
    """Return the descriptions of the causes."""
    return [cause.clause.present for cause in find_causes(table)]


def test_sick_instances_are_listed_in_natural_order() -> None:
    """Auths first, proxy-2 before proxy-10; a deregistered instance is not listed."""
    table = table_of(("proxy-10", SILENT), auth_1=UNHEALTHY, proxy_1=DEREGISTERED, proxy_2=SILENT)
    assert describe_causes(table) == [
        "auth-1 lost its backend",
        "proxy-2 is not responding",
        "proxy-10 is not responding",
    ]
    assert describe_causes(table_of()) == []
    assert find_causes(replace(table, as_of=None)) == ()


def test_backend_explains_instances_that_fail_after_it() -> None:
    """A proxy that expired after the auths failed is explained; a proxy that failed before them is not."""
    auths_unhealthy = {"auth_1": UNHEALTHY, "auth_2": UNHEALTHY}
    table_with_expired_proxy = table_of(proxy_1=EXPIRED, **auths_unhealthy)
    (backend,) = find_causes(table_with_expired_proxy)
    assert backend.key == "backend/default"
    assert backend.clause.present == "both auths lost their backend"
    table_with_earlier_failure = table_of(proxy_1={**SILENT, "sick_since": NOW - 300}, **auths_unhealthy)
    assert describe_causes(table_with_earlier_failure) == [
        backend.clause.present,
        "proxy-1 is not responding",
    ]


def test_proxy_that_only_expired_is_explained_by_a_sick_auth() -> None:
    """The proxy responds but could not write its heartbeat; without a sick auth it is a cause."""
    assert describe_causes(table_of(auth_1=UNHEALTHY, proxy_1=EXPIRED)) == ["auth-1 lost its backend"]
    assert describe_causes(table_of(proxy_1=EXPIRED)) == ["proxy-1 has expired"]


def test_auth_explains_proxies_that_heartbeat_through_it() -> None:
    """Unhealthy or expired proxies; a proxy that heartbeats through another auth is a cause."""
    heartbeat_path = {"heartbeat_auth": "uuid-auth-1", "group": "eu"}
    table = table_of(
        auth_1=UNHEALTHY, proxy_1={**UNHEALTHY, **heartbeat_path}, proxy_2={**EXPIRED, **heartbeat_path}
    )
    assert describe_causes(table) == ["auth-1 lost its backend"]
    other_path = {**EXPIRED, "heartbeat_auth": "uuid-auth-2"}
    assert describe_causes(table_of(auth_1=UNHEALTHY, proxy_1=other_path)) == [
        "auth-1 lost its backend",
        "proxy-1 has expired",
    ]


def test_backend_explains_proxies_that_depend_on_it_and_failed_first() -> None:
    """Their heartbeats were due before those of the auths."""
    auths_unhealthy = {**UNHEALTHY, "ttl": 600.0}
    failed_earlier = {**UNHEALTHY, "sick_since": NOW - 100, "heartbeat_auth": "uuid-auth-1"}
    (backend,) = find_causes(table_of(auth_1=auths_unhealthy, auth_2=auths_unhealthy, proxy_1=failed_earlier))
    assert backend.key == "backend/default"


def test_group_that_fails_together_is_one_cause() -> None:
    """Two proxies of three; the group is listed instead of its proxies."""
    eu = {"group": "eu"}
    table = table_of(("proxy-3", {**eu, **SILENT}), proxy_1={**eu, **SILENT}, proxy_2=eu)
    assert [cause.key for cause in find_causes(table)] == ["proxy-group/eu"]
    assert describe_causes(table) == ["2 of 3 instances of proxy group eu are failing"]


def test_unreachable_cluster_is_one_cause() -> None:
    """The state of single instances is unknown then."""
    table = table_of(auth_1=SILENT, auth_2=SILENT, proxy_1=SILENT, proxy_2=SILENT)
    assert describe_causes(table) == ["no instance of the cluster responds"]


def test_causes_have_the_states_of_their_agents() -> None:
    """A cause without agents has none; an agent without a cause counts for none."""
    table = with_verdicts(
        table_of(auth_1=EXPIRED, proxy_2=SILENT),
        *((State.STRANDED, AUTH_1), (State.AT_RISK, AUTH_1), (State.OFFLINE, NO_CAUSE)),
    )
    assert agent_states_by_name(table) == {
        "auth-1": {State.STRANDED, State.AT_RISK},
        "proxy-2": frozenset(),
    }


def test_agents_of_an_inhibited_cause_count_for_its_inhibitor() -> None:
    """For a failing auth, for the backend, for a group, and for the whole cluster."""
    stranded_by_proxy = (State.STRANDED, PROXY_1)
    heartbeatless = table_of(auth_1=UNHEALTHY, proxy_1=EXPIRED)
    assert agent_states_by_name(with_verdicts(heartbeatless, stranded_by_proxy)) == {
        "auth-1": {State.STRANDED}
    }
    behind = table_of(auth_1=UNHEALTHY, proxy_1={**UNHEALTHY, "heartbeat_auth": "uuid-auth-1"})
    assert agent_states_by_name(with_verdicts(behind, stranded_by_proxy)) == {"auth-1": {State.STRANDED}}
    without_backend = table_of(auth_1=UNHEALTHY, auth_2=UNHEALTHY, proxy_1=EXPIRED)
    verdicts = (stranded_by_proxy, (State.AT_RISK, BACKEND_CAUSE))
    assert agent_states_by_name(with_verdicts(without_backend, *verdicts)) == {
        "both": {State.STRANDED, State.AT_RISK}
    }
    group = table_of(proxy_1={"group": "eu", **SILENT}, proxy_2={"group": "eu", **SILENT})
    assert agent_states_by_name(with_verdicts(group, stranded_by_proxy)) == {"2": {State.STRANDED}}
    unreachable = table_of(auth_1=SILENT, auth_2=SILENT, proxy_1=SILENT, proxy_2=SILENT)
    unreachable = with_verdicts(unreachable, (State.UNKNOWN, NO_CAUSE))
    assert agent_states_by_name(unreachable) == {"no": {State.UNKNOWN}}


def test_instances_without_incident_are_listed_for_their_agents_only() -> None:
    """A degraded proxy that agents depend on, and a deregistered one that they lost; not those without agents."""
    table = table_of(auth_1=UNHEALTHY, proxy_1=DEREGISTERED)
    views = {**table.instances, PROXY_2: replace(table.instances[PROXY_2], health=Health.DEGRADED)}
    table = replace(table, instances=views)
    assert describe_causes(table) == ["auth-1 lost its backend"]
    table = with_verdicts(table, (State.DEGRADED, PROXY_2), (State.AT_RISK, PROXY_1))
    assert describe_causes(table) == [
        "auth-1 lost its backend",
        "proxy-1 was deregistered",
        "proxy-2 is degraded",
    ]
