"""Cost, restarts and affected agents in plans of policies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.changes.policies import outlook
from fleet.changes.policies.outlook import PlannedInstance, PolicySnapshot
from fleet.protocol.policies.env_policies import BY_NAME, HTTP_CLOSE_VARIABLE
from fleet.protocol.recovery import reconnect_schedule
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from fleet.protocol.recovery.discovery import COMPACT_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE

RECONNECT = (
    '{"grpc_client_lb_policy": {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}], '
    '"healthCheckConfig": {"serviceName": ""}}}'
)
SNAPSHOT = PolicySnapshot(
    {"a1": 30, "a2": 20, "p1": 25, "p2": 25}, {"a1": {("pick_first", False): 30}}, 50, 0.6, 100.0, 0.4
)
PROXIES = [
    PlannedInstance("p1", "proxy-1", "proxy", True, {PROXY_TTL_VARIABLE: "1m", COMPACT_VARIABLE: "true"}),
    PlannedInstance("p2", "proxy-2", "proxy", True, {PROXY_TTL_VARIABLE: "60s", COMPACT_VARIABLE: "true"}),
]


def _with_values(instance: PlannedInstance, **values: str) -> PlannedInstance:
    return replace(instance, planned_values={**instance.current_values, **values})


def test_ttl_row_contains_both_values() -> None:
    """Detection, heartbeat writes and discovery messages per second; equal TTLs are one row."""
    outlook_values = outlook.outlook_of(
        [_with_values(instance, **{PROXY_TTL_VARIABLE: "10m"}) for instance in PROXIES], SNAPSHOT
    )
    (row,) = outlook_values["ttl"]
    assert row["title"] == "2 proxies, TTL 1 min to 10 min"
    assert (row["before"]["detection_time"], row["after"]["detection_time"]) == ("1 min 8 s", "10 min 35 s")
    # Heartbeats of two proxies every 33 s, sent on 50 tunnels, and a full list every 10 min.
    assert row["before"]["writes_per_second"] == 0.0606
    assert row["before"]["messages_per_second"] == 3.11
    assert row["after"]["messages_per_second"] == 0.311
    assert any("The TTL increases" in note for note in outlook_values["notes"])
    assert not any("RFD 226" in note for note in outlook_values["notes"])
    longer = outlook.outlook_of(
        [_with_values(instance, **{PROXY_TTL_VARIABLE: "15m"}) for instance in PROXIES], SNAPSHOT
    )
    assert any("agents detect a lost proxy after up to 15 min 50 s" in note for note in longer["notes"])
    description = outlook.describe_ttl_row(row)
    assert "a lost proxy is detected within 10 min 35 s (now 1 min 8 s)" in description
    assert "discovery messages 0.311/s (now 3.11/s)" in description


def test_ttl_below_three_polls_has_a_warning() -> None:
    """The console would treat healthy instances as expired."""
    outlook_values = outlook.outlook_of(
        [_with_values(PROXIES[0], **{PROXY_TTL_VARIABLE: "1s"}), _with_values(PROXIES[1])], SNAPSHOT
    )
    assert "shorter than three polls of Refloat" in outlook_values["notes"][0]
    assert outlook_values["ttl"][0]["instances"] == ["proxy-1"]


def test_changed_compact_discovery_is_a_row() -> None:
    """Off: every proxy sends the full list on its tunnels every 10 s."""
    (row,) = outlook.outlook_of(
        [_with_values(instance, **{COMPACT_VARIABLE: "false"}) for instance in PROXIES], SNAPSHOT
    )["ttl"]
    assert "compact discovery off" in row["title"]
    assert row["after"]["messages_per_second"] == 5.0


def test_ttl_of_auths_has_no_discovery_messages() -> None:
    """Agents discover proxies only; an auth is lost when its resource expires."""
    auth = PlannedInstance(
        "a1", "auth-1", "auth", True, {AUTH_TTL_VARIABLE: "10m"}, {AUTH_TTL_VARIABLE: "1m"}
    )
    (row,) = outlook.outlook_of([auth], SNAPSHOT)["ttl"]
    assert row["after"]["messages_per_second"] == 0
    assert (row["before"]["detection_time"], row["after"]["detection_time"]) == ("10 min", "1 min")
    assert "discovery" not in outlook.describe_ttl_row(row)


def test_load_balancing_effect_names_affected_agents() -> None:
    """Agents of restarted auths at once; agents with an older value later."""
    current_auth = PlannedInstance(
        "a1", "auth-1", "auth", False, {RFD_VARIABLE: RECONNECT}, {RFD_VARIABLE: RECONNECT}
    )
    outdated_auth = PlannedInstance(
        "a2", "auth-2", "auth", True, {RFD_VARIABLE: ""}, {RFD_VARIABLE: RECONNECT}
    )
    (effect,) = outlook.outlook_of([current_auth, outdated_auth], SNAPSHOT)["effects"]
    assert (effect["restarted_instances"], effect["affected_now_count"], effect["affected_later_count"]) == (
        ["auth-2"],
        20,
        30,
    )
    assert effect["value"] == "reconnect, health check"
    assert "20 agents get the new value when they reconnect" in effect["explanation"]
    assert "30 more with their next connection" in effect["explanation"]
    by_hand = outlook.outlook_of([current_auth, replace(outdated_auth, is_restarted=False)], SNAPSHOT)[
        "effects"
    ][0]
    assert by_hand["manual_restarts"] == ["auth-2"]
    assert "This change does not restart auth-2" in by_hand["explanation"]


def test_http_close_affects_no_agent() -> None:
    """Agents do not connect by HTTP."""
    auth = PlannedInstance(
        "a1", "auth-1", "auth", True, {HTTP_CLOSE_VARIABLE: "false"}, {HTTP_CLOSE_VARIABLE: "true"}
    )
    (effect,) = outlook.outlook_of([auth], SNAPSHOT)["effects"]
    assert (effect["restarted_instances"], effect["affected_now_count"]) == (["auth-1"], 0)
    assert "HTTP clients only" in effect["explanation"]


def test_reconnect_interval_effect_contains_the_rate() -> None:
    """For the tunnels of restarted proxies."""
    proxy = PlannedInstance(
        "p1",
        "proxy-1",
        "proxy",
        True,
        {reconnect_schedule.INTERVAL_VARIABLE: ""},
        {reconnect_schedule.INTERVAL_VARIABLE: "10s"},
    )
    (effect,) = outlook.outlook_of([proxy], SNAPSHOT)["effects"]
    assert "10 s to 15 s after it was opened: 2 reconnects per second for 25 tunnels" in effect["explanation"]
    unset_proxy = replace(
        proxy, current_values=proxy.planned_values, planned_values={reconnect_schedule.INTERVAL_VARIABLE: ""}
    )
    assert (
        ": never. 1 of 1 instance must restart"
        in outlook.outlook_of([unset_proxy], SNAPSHOT)["effects"][0]["explanation"]
    )


def test_unchanged_values_have_no_effects() -> None:
    """A current value that Refloat would refuse has none either."""
    invalid_instance = PlannedInstance(
        "p1", "proxy-1", "proxy", False, {PROXY_TTL_VARIABLE: "soon"}, {PROXY_TTL_VARIABLE: "1m"}
    )
    outlook_values = outlook.outlook_of([invalid_instance, _with_values(PROXIES[1])], SNAPSHOT)
    assert (outlook_values["ttl"], outlook_values["effects"], outlook_values["notes"]) == ([], [], [])


def test_affected_agents_do_not_depend_on_the_policy_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether agents are affected depends on the variable."""
    label = BY_NAME[HTTP_CLOSE_VARIABLE].label
    policies = {
        **BY_NAME,
        reconnect_schedule.INTERVAL_VARIABLE: replace(
            BY_NAME[reconnect_schedule.INTERVAL_VARIABLE], label=label
        ),
    }
    monkeypatch.setattr(outlook, "BY_NAME", policies)
    proxies = [
        PlannedInstance(
            "p1",
            "proxy-1",
            "proxy",
            True,
            {reconnect_schedule.INTERVAL_VARIABLE: ""},
            {reconnect_schedule.INTERVAL_VARIABLE: "1h"},
        )
    ]
    (effect,) = outlook.outlook_of(proxies, SNAPSHOT)["effects"]
    assert "25 tunnels" in effect["explanation"]
    assert (effect["label"], effect["affected_now_count"] + effect["affected_later_count"]) == (label, 25)


def test_load_balancing_warns_of_an_unserved_health_service() -> None:
    """The plan contains the warning."""
    service_value = RECONNECT.replace('"serviceName": ""', '"serviceName": "fleet.Agents"')
    auth = PlannedInstance(
        "a1", "auth-1", "auth", True, {RFD_VARIABLE: RECONNECT}, {RFD_VARIABLE: service_value}
    )
    (note,) = outlook.outlook_of([auth], SNAPSHOT)["notes"]
    assert "No auth serves the health service 'fleet.Agents'" in note


def test_load_balancing_warns_of_a_health_check_in_pick_first() -> None:
    """It has no effect; agents that use pick_first already are not counted."""
    value = RECONNECT.replace("reconnect", "pick_first")
    current_auth = PlannedInstance(
        "a1", "auth-1", "auth", False, {RFD_VARIABLE: value}, {RFD_VARIABLE: value}
    )
    outdated_auth = PlannedInstance(
        "a2", "auth-2", "auth", True, {RFD_VARIABLE: RECONNECT}, {RFD_VARIABLE: value}
    )
    (effect,) = outlook.outlook_of([current_auth, outdated_auth], SNAPSHOT)["effects"]
    assert (effect["value"], effect["affected_later_count"]) == ("pick_first", 0)
    assert "In mode pick_first the health check has no effect" in effect["explanation"]
