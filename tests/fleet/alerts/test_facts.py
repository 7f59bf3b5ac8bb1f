from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from fleet.alerts.facts import affected_agents_of, facts_of_table
from fleet.alerts.findings import evaluate_rules
from fleet.alerts.rules import DEFAULT_RULES
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.incidents import CauseKind
from fleet.vocabulary.instances import InstanceState
from fleet.vocabulary.verdicts import NO_CAUSE, Reason, Recovery, State
from tests.fakes import small_fleet
from tests.fakes.reader import FakeReader
from tests.fakes.small_fleet import SILENT, UNHEALTHY

_NOW = time.time()


def _table(states: list[State], causes: list[int], *, as_of: float | None = _NOW) -> FleetTable:
    table = FakeReader(states, as_of=as_of, proxy_state=InstanceState.SILENT).table("default", _NOW)
    table.verdicts["cause"] = causes
    table.verdicts["since"] = [_NOW - 30 if state is State.STRANDED else _NOW - 3600 for state in states]
    table.verdicts["recovers_at"] = _NOW + 60
    table.verdicts["reason_and_recovery"] = Reason.NO_TUNNEL | (Recovery.BY_ITSELF << 5)
    return table


def test_gather_groups_agents_by_cause() -> None:
    """Stranded agents and agents at risk per cause, with names, agent sets and recovery time."""
    states = [State.STRANDED, State.STRANDED, State.AT_RISK, State.HEALTHY, State.STRANDED, State.RETIRED]
    table = _table(states, [2, 2, 2, NO_CAUSE, NO_CAUSE, NO_CAUSE])
    agent_sets = {"critical": np.array([True, False, True, False, False, False])}
    facts = facts_of_table(table, _NOW, agent_sets)
    by_key = {group.cause.key: group for group in facts.affected_groups}
    proxy = by_key["proxy/proxy-id-1"]
    assert (proxy.stranded_count, proxy.at_risk_count, proxy.stranded_by_agent_set) == (2, 1, {"critical": 1})
    assert (proxy.at_risk_by_agent_set, proxy.agent_sets) == ({"critical": 1}, {"critical"})
    assert proxy.agent_names == ("agent-0", "agent-1", "agent-2")
    assert proxy.recovers_at == _NOW + 60
    assert by_key["agents/no-tunnel"].stranded_count == 1
    assert (facts.agent_count, facts.stranded_count, facts.recently_lost_count) == (5, 3, 3)
    assert [sick.cause.name for sick in facts.sick_instances] == ["proxy-1"]
    assert affected_agents_of(table, "proxy/proxy-id-1").tolist() == [0, 1, 2]


def test_fleet_wide_incident_lists_the_agents_it_counts() -> None:
    """For every rule about the whole fleet."""
    states = [State.STRANDED, State.STRANDED, State.OFFLINE, State.EXCESS, State.HEALTHY, State.RETIRED]
    table = _table(states, [2, 2, NO_CAUSE, NO_CAUSE, NO_CAUSE, NO_CAUSE])
    table.heartbeats["mode"] = [1, 1, 1, 2, 1, 0]
    facts = facts_of_table(table, _NOW)
    rules = [replace(rule, enabled=True, min_count=1, min_share=0.0) for rule in DEFAULT_RULES]
    findings = {
        key: finding
        for key, finding in evaluate_rules(facts, rules).items()
        if finding.cause.kind is CauseKind.FLEET
    }
    assert {key: affected_agents_of(table, key).tolist() for key in findings} == {
        "fleet/rate": [0, 1],
        "fleet/excess": [3],
        "fleet/drift": [3],
    }
    assert {key: finding.affected_count for key, finding in findings.items()} == {
        "fleet/rate": 2,
        "fleet/excess": 1,
        "fleet/drift": 1,
    }
    assert affected_agents_of(table, f"cluster/{table.cluster}").tolist() == [0, 1, 2, 3, 4]


def test_several_regions_group_their_instances() -> None:
    """A region that contains every instance is no cause."""
    table = _table([State.STRANDED], [2])
    views = list(table.instances.items())

    def group_by_region(*regions: str) -> dict[str, tuple[str, ...]]:
        instances = {
            index: replace(view, facts=replace(view.facts, region=region))
            for (index, view), region in zip(views, regions, strict=True)
        }
        causes = facts_of_table(replace(table, instances=instances), _NOW).members_by_cause
        return {cause.key: keys for cause, keys in causes.items() if cause.kind is CauseKind.REGION}

    assert group_by_region("eu", "eu", "us", "") == {
        "region/eu": ("auth/auth-id-1", "auth/auth-id-2"),
        "region/us": ("proxy/proxy-id-1",),
    }
    assert group_by_region(*["eu"] * 4) == {}


def test_gather_excludes_muted_agents() -> None:
    """The table is not changed."""
    table = _table([State.STRANDED, State.STRANDED], [2, 2])
    assert (
        facts_of_table(table, _NOW, silenced_mask=np.array([True, False])).affected_groups[0].stranded_count
        == 1
    )
    assert facts_of_table(table, _NOW).affected_groups[0].stranded_count == 2


def test_facts_of_old_data_are_blind() -> None:
    """Old data is a fault of the console, not of the agents."""
    for as_of in (None, _NOW - 60):
        facts = facts_of_table(_table([State.STRANDED] * 9, [2] * 9, as_of=as_of), _NOW)
        assert not facts.is_fresh
        assert facts.blind_reason
        assert not facts.affected_groups


def test_facts_of_a_fleet_that_never_responded_are_blind() -> None:
    """Agents and instances are those of the database: an open incident has not ended."""
    table = _table([State.UNKNOWN, State.UNKNOWN], [NO_CAUSE, NO_CAUSE])
    instances = {index: replace(view, state=InstanceState.UNKNOWN) for index, view in table.instances.items()}
    for unknown_table in (replace(table, instances=instances), replace(table, instances={})):
        facts = facts_of_table(unknown_table, _NOW)
        assert (facts.is_fresh, facts.blind_reason) == (
            False,
            "No auth or proxy of this cluster has responded to Refloat yet.",
        )
    instances[1] = table.instances[1]
    assert facts_of_table(replace(table, instances=instances), _NOW).is_fresh


def test_gather_returns_when_each_cause_fell_sick() -> None:
    """For the backend: the time of its first auth minus the duration of a poll."""
    now = small_fleet.NOW
    table = replace(
        FakeReader([State.HEALTHY], as_of=now).table("default", now),
        fleet=small_fleet.fleet(
            auth_1=UNHEALTHY,
            auth_2={**UNHEALTHY, "sick_since": now - 8},
            proxy_1={**SILENT, "sick_since": now - 300.123456789},
        ),
    )
    # Rounded as in the database: causes that began at the same moment stay equal after one is read from a row.
    assert facts_of_table(table, now).sick_since == {
        "auth/auth-id-1": now - 2,
        "auth/auth-id-2": now - 8,
        "proxy/proxy-id-1": now - 300.123457,
        "backend/default": now - 18,
    }


def test_sick_proxy_depends_on_its_heartbeat_auth() -> None:
    """With its root cause; a proxy without a heartbeat auth has only expired."""
    table = _table([State.HEALTHY], [NO_CAUSE])
    (proxy,) = (view for view in table.instances.values() if view.facts.name == "proxy-1")

    def sick(auth: str, cause: str) -> tuple[bool, str, str]:
        sick_proxy = replace(
            proxy, state=InstanceState.EXPIRED, cause=cause, facts=replace(proxy.facts, heartbeat_auth=auth)
        )
        (sick_instance,) = facts_of_table(
            replace(table, instances={proxy.facts.index: sick_proxy}), _NOW
        ).sick_instances
        return sick_instance.is_expired_only, sick_instance.heartbeat_auth_key, sick_instance.root_cause_key

    assert sick("auth-id-1", "auth-id-1") == (False, "auth/auth-id-1", "auth/auth-id-1")
    assert sick("auth-id-1", "backend/default") == (False, "auth/auth-id-1", "backend/default")
    assert sick("auth-id-1", "") == (False, "auth/auth-id-1", "")
    assert sick("", "") == (True, "", "")
