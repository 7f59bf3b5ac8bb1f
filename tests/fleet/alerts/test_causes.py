from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fleet.alerts.causes import find_causes
from fleet.monitoring.classify import instance_state, prepare_frame
from fleet.monitoring.views import FleetTable, InstanceView
from fleet.vocabulary.instances import InstanceKind
from fleet.vocabulary.verdicts import BACKEND_CAUSE, State
from tests.fakes.reader import FakeReader
from tests.fakes.small_fleet import EXPIRED, GONE, NOW, SILENT, UNHEALTHY, fleet, instance


def table_of(*more: tuple[str, Mapping[str, Any]], **facts: Mapping[str, Any]) -> FleetTable:
    """Make a table of the small fleet, with instances that are as these facts say, and further proxies."""
    seen = fleet(**facts)
    known = dict(seen.instances)
    for name, changes in more:
        known[len(known)] = instance(len(known), InstanceKind.PROXY, name, **changes)
    seen = replace(seen, instances=known)
    frame = prepare_frame(seen, NOW)
    causes = {index: frame.cause_of(index) for index in known}
    names = {BACKEND_CAUSE: "backend/default", **{index: one.id for index, one in known.items()}}
    views = {
        index: InstanceView(
            *(one, instance_state(one, NOW, seen.timing), "", 0, {}),
            cause="" if causes[index] == index else names[causes[index]],
        )
        for index, one in known.items()
    }
    return replace(FakeReader([State.HEALTHY], as_of=NOW).table("default", NOW), instances=views, fleet=seen)


def words(table: FleetTable) -> list[str]:
    """List the causes in words."""
    return [cause.description for cause in find_causes(table)]


def test_instances_that_are_sick_are_named_as_people_count() -> None:
    """Auths first, proxy-2 before proxy-10; one that deregistered itself is no fault."""
    table = table_of(("proxy-10", SILENT), auth_1=UNHEALTHY, proxy_1=GONE, proxy_2=SILENT)
    assert words(table) == ["auth-1 is unhealthy", "proxy-2 is not responding", "proxy-10 is not responding"]
    assert words(table_of()) == []
    assert find_causes(replace(table, as_of=None)) == ()


def test_backend_is_the_one_cause_of_what_fell_sick_after_it() -> None:
    """Not three auths and one more: a proxy that expired behind them is explained, one that was dead before is not."""
    down = {"auth_1": UNHEALTHY, "auth_2": UNHEALTHY}
    behind = table_of(proxy_1=EXPIRED, **down)
    (backend,) = find_causes(behind)
    assert backend.key == "backend/default"
    assert backend.description == "all 2 auths failed at the same time, probably because of the auth backend"
    before = table_of(proxy_1={**SILENT, "sick_since": NOW - 300}, **down)
    assert words(before) == [backend.description, "proxy-1 is not responding"]


def test_proxy_that_merely_expired_behind_a_sick_auth_is_no_cause() -> None:
    """It answers, and could not write its heartbeat; without a sick auth it stands for itself."""
    assert words(table_of(auth_1=UNHEALTHY, proxy_1=EXPIRED)) == ["auth-1 is unhealthy"]
    assert words(table_of(proxy_1=EXPIRED)) == ["proxy-1 has expired"]


def test_auth_is_the_one_cause_of_the_proxies_that_heartbeat_through_it() -> None:
    """Unhealthy or expired, in one group or not; one that heartbeats through another auth stands for itself."""
    through = {"heartbeat_auth": "uuid-auth-1", "group": "eu"}
    table = table_of(auth_1=UNHEALTHY, proxy_1={**UNHEALTHY, **through}, proxy_2={**EXPIRED, **through})
    assert words(table) == ["auth-1 is unhealthy"]
    other = {**EXPIRED, "heartbeat_auth": "uuid-auth-2"}
    assert words(table_of(auth_1=UNHEALTHY, proxy_1=other)) == ["auth-1 is unhealthy", "proxy-1 has expired"]


def test_backend_is_the_one_cause_of_proxies_that_felt_it_first() -> None:
    """Their heartbeats were due before those of the auths."""
    down = {**UNHEALTHY, "ttl": 600.0}
    early = {**UNHEALTHY, "sick_since": NOW - 100, "heartbeat_auth": "uuid-auth-1"}
    (backend,) = find_causes(table_of(auth_1=down, auth_2=down, proxy_1=early))
    assert backend.key == "backend/default"


def test_group_that_fails_together_is_one_cause() -> None:
    """Two proxies of three; the group stands for them."""
    eu = {"group": "eu"}
    table = table_of(("proxy-3", {**eu, **SILENT}), proxy_1={**eu, **SILENT}, proxy_2=eu)
    assert [cause.key for cause in find_causes(table)] == ["proxy-group/eu"]
    assert words(table) == ["2 of 3 instances of proxy group eu are failing"]


def test_cluster_that_does_not_answer_is_one_cause() -> None:
    """Nothing can be said of any instance then."""
    table = table_of(auth_1=SILENT, auth_2=SILENT, proxy_1=SILENT, proxy_2=SILENT)
    assert words(table) == ["no instance of the cluster responds"]
