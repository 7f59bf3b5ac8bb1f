from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from fleet.alerts.facts import agents_of, gather, match_names
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
    table.verdicts["packed"] = Reason.NO_TUNNEL | (Recovery.BY_ITSELF << 5)
    return table


def test_gather_groups_agents_by_cause() -> None:
    """Stranded and at risk per cause, with names, labels and the time by which they heal."""
    states = [State.STRANDED, State.STRANDED, State.AT_RISK, State.HEALTHY, State.STRANDED, State.RETIRED]
    table = _table(states, [2, 2, 2, NO_CAUSE, NO_CAUSE, NO_CAUSE])
    labels = {"critical": np.array([True, False, True, False, False, False])}
    facts = gather(table, _NOW, labels)
    by_key = {group.cause.key: group for group in facts.groups}
    proxy = by_key["proxy/proxy-id-1"]
    assert (proxy.stranded_count, proxy.at_risk_count, proxy.stranded_by_label) == (2, 1, {"critical": 1})
    assert (proxy.at_risk_by_label, proxy.labels) == ({"critical": 1}, {"critical"})
    assert proxy.names == ("agent-0", "agent-1", "agent-2")
    assert proxy.heals_at == _NOW + 60
    assert by_key["agents/no-tunnel"].stranded_count == 1
    assert (facts.agent_count, facts.stranded_count, facts.recently_lost_count) == (5, 3, 3)
    assert [sick.cause.name for sick in facts.sick] == ["proxy-1"]
    assert agents_of(table, "proxy/proxy-id-1").tolist() == [0, 1, 2]


def test_incident_of_the_whole_fleet_names_the_agents_that_it_counts() -> None:
    """The page of such an incident lists as many agents as its figure says; no rule of the fleet is left out."""
    states = [State.STRANDED, State.STRANDED, State.OFFLINE, State.EXCESS, State.HEALTHY, State.RETIRED]
    table = _table(states, [2, 2, NO_CAUSE, NO_CAUSE, NO_CAUSE, NO_CAUSE])
    table.heartbeats["mode"] = [1, 1, 1, 2, 1, 0]
    facts = gather(table, _NOW)
    rules = [replace(rule, enabled=True, min_count=1, min_share=0.0) for rule in DEFAULT_RULES]
    found = {
        key: one for key, one in evaluate_rules(facts, rules).items() if one.cause.kind is CauseKind.FLEET
    }
    assert {key: agents_of(table, key).tolist() for key in found} == {
        "fleet/rate": [0, 1],
        "fleet/excess": [3],
        "fleet/drift": [3],
    }
    assert {key: one.affected for key, one in found.items()} == {
        "fleet/rate": 2,
        "fleet/excess": 1,
        "fleet/drift": 1,
    }
    assert agents_of(table, f"cluster/{table.cluster}").tolist() == [0, 1, 2, 3, 4]


def test_regions_stand_for_their_instances_where_there_are_several() -> None:
    """By auths and proxies; one that holds everything is the cluster, and no cause."""
    table = _table([State.STRANDED], [2])
    views = list(table.instances.items())

    def together(*regions: str) -> dict[str, tuple[str, ...]]:
        placed = {
            index: replace(view, facts=replace(view.facts, region=region))
            for (index, view), region in zip(views, regions, strict=True)
        }
        found = gather(replace(table, instances=placed), _NOW).members_by_cause
        return {cause.key: keys for cause, keys in found.items() if cause.kind is CauseKind.REGION}

    assert together("eu", "eu", "us", "") == {
        "region/eu": ("auth/auth-id-1", "auth/auth-id-2"),
        "region/us": ("proxy/proxy-id-1",),
    }
    assert together(*["eu"] * 4) == {}


def test_gather_leaves_muted_agents_out() -> None:
    """An agent that is silenced harms nothing, and the table stays as it was."""
    table = _table([State.STRANDED, State.STRANDED], [2, 2])
    assert gather(table, _NOW, muted_mask=np.array([True, False])).groups[0].stranded_count == 1
    assert gather(table, _NOW).groups[0].stranded_count == 2


def test_gather_is_blind_on_old_data() -> None:
    """Old data is our failure, not theirs."""
    for as_of in (None, _NOW - 60):
        facts = gather(_table([State.STRANDED] * 9, [2] * 9, as_of=as_of), _NOW)
        assert not facts.fresh
        assert facts.blind_reason
        assert not facts.groups


def test_match_names_takes_exact_names_and_globs() -> None:
    """Case counts; nothing matches nothing."""
    names = ["web-1", "web-2", "db-1", "Web-3"]
    assert match_names(names, ["db-1", "web-*"]).tolist() == [True, True, True, False]
    assert not match_names(names, []).any()


def test_gather_says_since_when_each_cause_has_been_sick() -> None:
    """Of an instance as rounds found it; of the backend since its first auth, less the time that polls may take."""
    now = small_fleet.NOW
    table = replace(
        FakeReader([State.HEALTHY], as_of=now).table("default", now),
        fleet=small_fleet.fleet(
            auth_1=UNHEALTHY,
            auth_2={**UNHEALTHY, "sick_since": now - 8},
            proxy_1={**SILENT, "sick_since": now - 300.123456789},
        ),
    )
    # As a row gives it back: two causes that began at the same moment stay equal when one has been read.
    assert gather(table, now).sick_since == {
        "auth/auth-id-1": now - 2,
        "auth/auth-id-2": now - 8,
        "proxy/proxy-id-1": now - 300.123457,
        "backend/default": now - 18,
    }


def test_sick_proxies_name_the_auth_they_heartbeat_through() -> None:
    """And what they suffer from, as the console found it; who names no auth merely expired."""
    table = _table([State.HEALTHY], [NO_CAUSE])
    (proxy,) = (view for view in table.instances.values() if view.facts.name == "proxy-1")

    def sick(auth: str, cause: str) -> tuple[bool, str, str]:
        changed = replace(
            proxy, state=InstanceState.EXPIRED, cause=cause, facts=replace(proxy.facts, heartbeat_auth=auth)
        )
        (one,) = gather(replace(table, instances={proxy.facts.index: changed}), _NOW).sick
        return one.expired_only, one.depends_on, one.root_cause

    assert sick("auth-id-1", "auth-id-1") == (False, "auth/auth-id-1", "auth/auth-id-1")
    assert sick("auth-id-1", "backend/default") == (False, "auth/auth-id-1", "backend/default")
    assert sick("auth-id-1", "") == (False, "auth/auth-id-1", "")
    assert sick("", "") == (True, "", "")
