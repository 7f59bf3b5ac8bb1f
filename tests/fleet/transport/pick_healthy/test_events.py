"""From grpc's words to the balancer's."""

from __future__ import annotations

import logging

import grpc
import pytest
from grpc_health.v1 import health_pb2

from fleet.protocol.recovery.pick_healthy import Balancer, RequestConfig, RetireReason, ServerHealth, Watch
from fleet.protocol.recovery.service_config import PickHealthyMode, ServiceConfig
from fleet.transport.pick_healthy.events import (
    ConfigUpdate,
    ConnectivityChange,
    HealthUpdate,
    ServiceUnknown,
    connectivity_of,
    decide,
    event_of_status,
    is_answer,
    log_retired,
    log_unknown_service,
    log_unreadable,
    policy_of,
    wait_again,
)
from fleet.transport.service_config import ConfigResponse


def test_a_connection_becomes_healthy() -> None:
    """Each event in turn."""
    balancer = Balancer()
    balancer.start()
    assert decide(balancer, 0, ConnectivityChange(grpc.ChannelConnectivity.READY), 0.0, 0.0) == [
        RequestConfig(0, 1)
    ]
    assert connectivity_of(balancer) is grpc.ChannelConnectivity.READY
    found = ConfigResponse(ServiceConfig(PickHealthyMode.RECONNECT, "x"), "auth")
    assert decide(balancer, 0, ConfigUpdate(1, found), 0.0, 0.0) == [Watch(0, 1, "x")]
    assert connectivity_of(balancer) is grpc.ChannelConnectivity.READY
    assert decide(balancer, 0, HealthUpdate(1, "x", ServerHealth.HEALTHY), 0.0, 0.0) == []
    assert connectivity_of(balancer) is grpc.ChannelConnectivity.READY


@pytest.mark.parametrize("found", [None, ConfigResponse(None), ConfigResponse(None, "a", "it is truncated")])
def test_no_config(found: ConfigResponse | None) -> None:
    """Before a policy is known, no outcome of the question keeps a connection from being READY."""
    balancer = Balancer()
    balancer.start()
    decide(balancer, 0, ConnectivityChange(grpc.ChannelConnectivity.READY), 0.0, 0.0)
    assert decide(balancer, 0, ConfigUpdate(1, found), 0.0, 0.0) == []
    assert connectivity_of(balancer) is grpc.ChannelConnectivity.READY


def test_every_state_of_grpc_is_known() -> None:
    """By name."""
    for state in grpc.ChannelConnectivity:
        decide(Balancer(), 0, ConnectivityChange(state), 0.0, 0.0)


def test_waits_grow_to_a_ceiling() -> None:
    """1 s to 16 s, and half again."""
    assert [wait_again(tries, 0.0) for tries in (0, 1, 4, 9, 10_000)] == [1.0, 2.0, 16.0, 16.0, 16.0]
    assert wait_again(0, 0.5) == 1.25


def test_every_outcome_has_its_event(caplog: pytest.LogCaptureFixture) -> None:
    """By a stable name; what repeats through an outage is no news."""
    caplog.set_level(logging.DEBUG, logger="fleet.transport.pick_healthy.events")
    for why in RetireReason:
        log_retired("auth connection of agent-1", why)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"balancer.{why}" for why in RetireReason
    ]
    quiet = {record.args[0] for record in caplog.records if record.levelno == logging.DEBUG and record.args}
    assert quiet == {RetireReason.REPLACED, RetireReason.RENEWAL_FAILED}


def test_answer_that_cannot_be_read_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Of each server; every one of them counts, and what can be read, or did not come, is none."""
    told: set[str] = set()
    for auth in ("a", "b", "a"):
        assert log_unreadable("channel", ConfigResponse(None, auth, "it is truncated"), told)
    assert caplog.text.count("service-config.refused") == 2
    for found in (None, ConfigResponse(None), ConfigResponse(ServiceConfig(), "c")):
        assert not log_unreadable("channel", found, told)


@pytest.mark.parametrize(
    ("found", "watch"),
    [
        pytest.param(None, "", id="the question failed"),
        pytest.param(ConfigResponse(None, "b", "it is truncated"), "", id="the answer cannot be read"),
        pytest.param(ConfigResponse(None), None, id="the server has no policies"),
    ],
)
def test_only_a_server_without_policies_ends_the_watch_of_the_last_one(
    found: ConfigResponse | None, watch: str | None
) -> None:
    """Everything else leaves the last known policy in force."""
    balancer = Balancer()
    balancer.start()
    decide(balancer, 0, ConnectivityChange(grpc.ChannelConnectivity.READY), 0.0, 0.0)
    decide(
        balancer,
        0,
        ConfigUpdate(1, ConfigResponse(ServiceConfig(PickHealthyMode.RECONNECT, ""), "a")),
        0.0,
        0.0,
    )
    again = decide(balancer, 0, ConnectivityChange(grpc.ChannelConnectivity.READY), 0.0, 0.0)
    assert again == [RequestConfig(0, 2), Watch(0, 2, "")]
    assert decide(balancer, 0, ConfigUpdate(2, found), 0.0, 0.0) == (
        [] if watch == "" else [Watch(0, 2, watch)]
    )
    assert is_answer(ConfigUpdate(2, found)) is (watch is None)
    assert balancer.health_check is (watch == "")


def test_status_of_a_watch() -> None:
    """Only SERVING is healthy; SERVICE_UNKNOWN says nothing of the server."""
    status = health_pb2.HealthCheckResponse
    assert event_of_status(1, "x", status.SERVING) == HealthUpdate(1, "x", ServerHealth.HEALTHY)
    assert event_of_status(1, "x", status.NOT_SERVING) == HealthUpdate(1, "x", ServerHealth.UNHEALTHY)
    assert event_of_status(1, "x", status.UNKNOWN) == HealthUpdate(1, "x", ServerHealth.UNHEALTHY)
    assert event_of_status(1, "x", status.SERVICE_UNKNOWN) == ServiceUnknown(1, "x")


def test_service_that_servers_do_not_know_is_the_problem_of_the_policy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged once, and the channel says SERVICE_UNKNOWN for as long as it is so."""
    balancer = Balancer()
    balancer.start()
    found = ConfigResponse(ServiceConfig(PickHealthyMode.RECONNECT, "x"), "a")
    decide(balancer, 0, ConnectivityChange(grpc.ChannelConnectivity.READY), 0.0, 0.0)
    decide(balancer, 0, ConfigUpdate(1, found), 0.0, 0.0)
    before = policy_of(balancer, found, 7.0)
    assert before is not None
    assert before.problem == ""
    assert decide(balancer, 0, ServiceUnknown(1, "x"), 0.0, 0.0) == [Watch(0, 1, "")]
    after = policy_of(balancer, found, 7.0)
    assert after is not None
    assert (
        after.problem
        == "SERVICE_UNKNOWN: no health service 'x'; using the health of the whole server instead"
    )
    assert policy_of(balancer, None, None) is None
    logged: set[str] = set()
    for _ in range(2):
        log_unknown_service("channel", ServiceUnknown(1, "x"), logged)
    assert caplog.text.count("health.service_unknown: channel: SERVICE_UNKNOWN: no health service 'x'") == 1
    log_unknown_service("channel", ServiceUnknown(1, ""), logged)
    assert "the server does not report its own health" in caplog.text
