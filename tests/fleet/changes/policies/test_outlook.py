"""What a plan of policies says of their cost, of restarts and of agents."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.changes.policies import outlook
from fleet.changes.policies.outlook import ChangedInstance, PolicySnapshot
from fleet.protocol.policies.env_policies import BY_NAME, HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery import reconnect_schedule
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from fleet.protocol.recovery.discovery import COMPACT_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE

RECONNECT = (
    '{"grpc_client_lb_policy": {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}], '
    '"healthCheckConfig": {"serviceName": ""}}}'
)
SIGHT = PolicySnapshot(
    {"a1": 30, "a2": 20, "p1": 25, "p2": 25}, {"a1": {("pick_first", False): 30}}, 50, 0.6, 100.0, 0.4
)
PROXIES = [
    ChangedInstance("p1", "proxy-1", "proxy", True, {PROXY_TTL_VARIABLE: "1m", COMPACT_VARIABLE: "true"}),
    ChangedInstance("p2", "proxy-2", "proxy", True, {PROXY_TTL_VARIABLE: "60s", COMPACT_VARIABLE: "true"}),
]


def _to(one: ChangedInstance, **values: str) -> ChangedInstance:
    return replace(one, planned_values={**one.current_values, **values})


def test_ttl_before_and_after() -> None:
    """Detection, heartbeat writes and discovery messages a second; those that mean the same are one row."""
    found = outlook.outlook_of([_to(one, **{PROXY_TTL_VARIABLE: "10m"}) for one in PROXIES], SIGHT)
    (row,) = found["ttl"]
    assert row["title"] == "2 proxies, TTL 1m0s to 10m0s"
    assert (row["before"]["detection"], row["after"]["detection"]) == ("1m8s", "10m35s")
    # A heartbeat of two proxies every 33 s, told on 50 tunnels, and a full list every ten minutes.
    assert row["before"]["writes"] == 0.0606
    assert row["before"]["messages"] == 3.11
    assert row["after"]["messages"] == 0.311
    assert any("The TTL increases" in note for note in found["notes"])
    assert not any("RFD 226" in note for note in found["notes"])
    longer = outlook.outlook_of([_to(one, **{PROXY_TTL_VARIABLE: "15m"}) for one in PROXIES], SIGHT)
    assert any("agents detect a lost proxy after up to 15m50s" in note for note in longer["notes"])
    said = outlook.describe_ttl(row)
    assert "a lost proxy is detected within 10m35s (now 1m8s)" in said
    assert "discovery messages 0.311/s (now 3.11/s)" in said


def test_ttl_below_three_rounds_is_warned_of() -> None:
    """This console would take instances that are well for expired."""
    found = outlook.outlook_of([_to(PROXIES[0], **{PROXY_TTL_VARIABLE: "1s"}), _to(PROXIES[1])], SIGHT)
    assert "shorter than three polls of Refloat" in found["notes"][0]
    assert found["ttl"][0]["names"] == ["proxy-1"]


def test_compact_alone_is_a_row_too() -> None:
    """Off: every proxy tells its own tunnels all of them every 10 s."""
    (row,) = outlook.outlook_of([_to(one, **{COMPACT_VARIABLE: "false"}) for one in PROXIES], SIGHT)["ttl"]
    assert "compact discovery off" in row["title"]
    assert row["after"]["messages"] == 5.0


def test_auths_ttl_has_no_discovery() -> None:
    """Agents are told of proxies only; an auth is lost when its resource expires."""
    auth = ChangedInstance(
        "a1", "auth-1", "auth", True, {AUTH_TTL_VARIABLE: "10m"}, {AUTH_TTL_VARIABLE: "1m"}
    )
    (row,) = outlook.outlook_of([auth], SIGHT)["ttl"]
    assert row["after"]["messages"] == 0
    assert (row["before"]["detection"], row["after"]["detection"]) == ("10m0s", "1m0s")
    assert "discovery" not in outlook.describe_ttl(row)


def test_load_balancing_names_who_reads_it_when() -> None:
    """Agents of restarted auths at once; those told otherwise by an auth that has it already, later."""
    has = ChangedInstance("a1", "auth-1", "auth", False, {RFD_VARIABLE: RECONNECT}, {RFD_VARIABLE: RECONNECT})
    lacks = ChangedInstance("a2", "auth-2", "auth", True, {RFD_VARIABLE: ""}, {RFD_VARIABLE: RECONNECT})
    (effect,) = outlook.outlook_of([has, lacks], SIGHT)["effects"]
    assert (effect["restart"], effect["agents_now"], effect["agents_later"]) == (["auth-2"], 20, 30)
    assert effect["value"] == "reconnect, health check"
    assert "20 agents get the new value when they reconnect" in effect["sentence"]
    assert "30 more with their next connection" in effect["sentence"]
    by_hand = outlook.outlook_of([has, replace(lacks, is_restarted=False)], SIGHT)["effects"][0]
    assert by_hand["by_hand"] == ["auth-2"]
    assert "This change does not restart auth-2" in by_hand["sentence"]


def test_http_close_concerns_no_agent() -> None:
    """Those who connect by HTTP are no agents."""
    auth = ChangedInstance(
        "a1", "auth-1", "auth", True, {HTTP_CLOSE_VARIABLE: "false"}, {HTTP_CLOSE_VARIABLE: "true"}
    )
    (effect,) = outlook.outlook_of([auth], SIGHT)["effects"]
    assert (effect["restart"], effect["agents_now"]) == (["auth-1"], 0)
    assert "HTTP clients only" in effect["sentence"]


def test_reconnect_interval_says_its_rate() -> None:
    """Of the tunnels on what restarts."""
    proxy = ChangedInstance(
        "p1",
        "proxy-1",
        "proxy",
        True,
        {reconnect_schedule.VARIABLE: ""},
        {reconnect_schedule.VARIABLE: "10s"},
    )
    (effect,) = outlook.outlook_of([proxy], SIGHT)["effects"]
    assert "10s to 15s after it was opened: 2 reconnects per second for 25 tunnels" in effect["sentence"]
    back = replace(
        proxy, current_values=proxy.planned_values, planned_values={reconnect_schedule.VARIABLE: ""}
    )
    assert (
        "→ never: 1 of 1 instance must restart" in outlook.outlook_of([back], SIGHT)["effects"][0]["sentence"]
    )


def test_nothing_changes_nothing_is_said() -> None:
    """And what a node has that we would refuse changes nothing either."""
    odd = ChangedInstance(
        "p1", "proxy-1", "proxy", False, {PROXY_TTL_VARIABLE: "soon"}, {PROXY_TTL_VARIABLE: "1m"}
    )
    found = outlook.outlook_of([odd, _to(PROXIES[1])], SIGHT)
    assert (found["ttl"], found["effects"], found["notes"]) == ([], [], [])


def test_agents_of_a_policy_are_counted_by_what_it_is_not_by_its_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Agents are not connected by HTTP: that is known of the variable, whatever the pages call it."""
    label = BY_NAME[HTTP_CLOSE_VARIABLE].label
    renamed = {
        **BY_NAME,
        reconnect_schedule.VARIABLE: replace(BY_NAME[reconnect_schedule.VARIABLE], label=label),
    }
    monkeypatch.setattr(outlook, "BY_NAME", renamed)
    proxies = [
        ChangedInstance(
            "p1",
            "proxy-1",
            "proxy",
            True,
            {reconnect_schedule.VARIABLE: ""},
            {reconnect_schedule.VARIABLE: "1h"},
        )
    ]
    (effect,) = outlook.outlook_of(proxies, SIGHT)["effects"]
    assert "25 tunnels" in effect["sentence"]
    assert (effect["label"], effect["agents_now"] + effect["agents_later"]) == (label, 25)


def test_load_balancing_warns_of_a_health_service_that_no_auth_serves() -> None:
    """In the plan too, where somebody confirms it."""
    named = RECONNECT.replace('"serviceName": ""', '"serviceName": "fleet.Agents"')
    auth = ChangedInstance("a1", "auth-1", "auth", True, {RFD_VARIABLE: RECONNECT}, {RFD_VARIABLE: named})
    (note,) = outlook.outlook_of([auth], SIGHT)["notes"]
    assert "No auth serves the health service 'fleet.Agents'" in note


def test_load_balancing_warns_of_a_health_check_in_pick_first() -> None:
    """It has no effect; agents that were told pick_first run with it already, and are no news."""
    checked = RECONNECT.replace("reconnect", "pick_first")
    has = ChangedInstance("a1", "auth-1", "auth", False, {RFD_VARIABLE: checked}, {RFD_VARIABLE: checked})
    lacks = ChangedInstance("a2", "auth-2", "auth", True, {RFD_VARIABLE: RECONNECT}, {RFD_VARIABLE: checked})
    (effect,) = outlook.outlook_of([has, lacks], SIGHT)["effects"]
    assert (effect["value"], effect["agents_later"]) == ("pick_first", 0)
    assert "In mode pick_first the health check has no effect" in effect["sentence"]
