"""Conversion of grpc's events to the balancer's."""

from __future__ import annotations

import logging

import grpc
import pytest
from grpc_health.v1 import health_pb2

from fleet.protocol.recovery.pick_healthy import (
    Balancer,
    RequestConfig,
    RetireReason,
    ServerHealth,
    WatchHealth,
)
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
    log_unreadable_policy,
    policy_of,
    seconds_before_retry,
)
from fleet.transport.service_config import ConfigResponse


def test_connection_becomes_healthy() -> None:
    balancer = Balancer()
    balancer.start()
    assert decide(balancer, 0, ConnectivityChange(grpc.ChannelConnectivity.READY), 0.0, 0.0) == [
        RequestConfig(0, 1)
    ]
    assert connectivity_of(balancer) is grpc.ChannelConnectivity.READY
    response = ConfigResponse(ServiceConfig(PickHealthyMode.RECONNECT, "x"), "auth")
    assert decide(balancer, 0, ConfigUpdate(1, response), 0.0, 0.0) == [WatchHealth(0, 1, "x")]
    assert connectivity_of(balancer) is grpc.ChannelConnectivity.READY
    assert decide(balancer, 0, HealthUpdate(1, "x", ServerHealth.HEALTHY), 0.0, 0.0) == []
    assert connectivity_of(balancer) is grpc.ChannelConnectivity.READY


@pytest.mark.parametrize(
    "response", [None, ConfigResponse(None), ConfigResponse(None, "a", "it is truncated")]
)
def test_connection_is_ready_without_a_config(response: ConfigResponse | None) -> None:
    """Before a policy is known, any outcome of the config request leaves the connection READY."""
    balancer = Balancer()
    balancer.start()
    decide(balancer, 0, ConnectivityChange(grpc.ChannelConnectivity.READY), 0.0, 0.0)
    assert decide(balancer, 0, ConfigUpdate(1, response), 0.0, 0.0) == []
    assert connectivity_of(balancer) is grpc.ChannelConnectivity.READY


def test_every_grpc_state_is_converted() -> None:
    for state in grpc.ChannelConnectivity:
        decide(Balancer(), 0, ConnectivityChange(state), 0.0, 0.0)


def test_waits_between_config_requests_grow_to_a_ceiling() -> None:
    """1 s to 16 s, plus up to a half."""
    assert [seconds_before_retry(attempts, 0.0) for attempts in (0, 1, 4, 9, 10_000)] == [
        1.0,
        2.0,
        16.0,
        16.0,
        16.0,
    ]
    assert seconds_before_retry(0, 0.5) == 1.25


def test_every_retire_reason_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Each has a stable event name; reasons that repeat during an outage are logged as debug."""
    caplog.set_level(logging.DEBUG, logger="fleet.transport.pick_healthy.events")
    for reason in RetireReason:
        log_retired("auth connection of agent-1", reason)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"balancer.{reason}" for reason in RetireReason
    ]
    debug_reasons = {
        record.args[0] for record in caplog.records if record.levelno == logging.DEBUG and record.args
    }
    assert debug_reasons == {RetireReason.REPLACED, RetireReason.RENEWAL_FAILED}


def test_unreadable_response_is_logged_once_per_auth(caplog: pytest.LogCaptureFixture) -> None:
    """Every unreadable response counts; valid and missing ones do not."""
    logged_auths: set[str] = set()
    for auth in ("a", "b", "a"):
        assert log_unreadable_policy("channel", ConfigResponse(None, auth, "it is truncated"), logged_auths)
    assert caplog.text.count("service-config.unreadable") == 2
    for response in (None, ConfigResponse(None), ConfigResponse(ServiceConfig(), "c")):
        assert not log_unreadable_policy("channel", response, logged_auths)


@pytest.mark.parametrize(
    ("response", "watch"),
    [
        pytest.param(None, "", id="the request failed"),
        pytest.param(ConfigResponse(None, "b", "it is truncated"), "", id="the response cannot be read"),
        pytest.param(ConfigResponse(None), None, id="the server has no policies"),
    ],
)
def test_only_a_server_without_policies_ends_the_last_watch(
    response: ConfigResponse | None, watch: str | None
) -> None:
    """Otherwise the last known policy stays in force."""
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
    commands = decide(balancer, 0, ConnectivityChange(grpc.ChannelConnectivity.READY), 0.0, 0.0)
    assert commands == [RequestConfig(0, 2), WatchHealth(0, 2, "")]
    assert decide(balancer, 0, ConfigUpdate(2, response), 0.0, 0.0) == (
        [] if watch == "" else [WatchHealth(0, 2, watch)]
    )
    assert is_answer(ConfigUpdate(2, response)) is (watch is None)
    assert balancer.health_check is (watch == "")


def test_health_of_a_status() -> None:
    """Only SERVING is healthy; SERVICE_UNKNOWN is no health of the server."""
    status = health_pb2.HealthCheckResponse
    assert event_of_status(1, "x", status.SERVING) == HealthUpdate(1, "x", ServerHealth.HEALTHY)
    assert event_of_status(1, "x", status.NOT_SERVING) == HealthUpdate(1, "x", ServerHealth.UNHEALTHY)
    assert event_of_status(1, "x", status.UNKNOWN) == HealthUpdate(1, "x", ServerHealth.UNHEALTHY)
    assert event_of_status(1, "x", status.SERVICE_UNKNOWN) == ServiceUnknown(1, "x")


def test_unknown_service_is_a_problem_of_the_policy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged once, and the channel reports SERVICE_UNKNOWN while it applies."""
    balancer = Balancer()
    balancer.start()
    response = ConfigResponse(ServiceConfig(PickHealthyMode.RECONNECT, "x"), "a")
    decide(balancer, 0, ConnectivityChange(grpc.ChannelConnectivity.READY), 0.0, 0.0)
    decide(balancer, 0, ConfigUpdate(1, response), 0.0, 0.0)
    policy_before = policy_of(balancer, response, 7.0)
    assert policy_before is not None
    assert policy_before.problem == ""
    assert decide(balancer, 0, ServiceUnknown(1, "x"), 0.0, 0.0) == [WatchHealth(0, 1, "")]
    policy_after = policy_of(balancer, response, 7.0)
    assert policy_after is not None
    assert (
        policy_after.problem
        == "SERVICE_UNKNOWN: no health service 'x'; using the health of the whole server instead"
    )
    assert policy_of(balancer, None, None) is None
    logged_services: set[str] = set()
    for _ in range(2):
        log_unknown_service("channel", ServiceUnknown(1, "x"), logged_services)
    assert caplog.text.count("health.service-unknown: channel: SERVICE_UNKNOWN: no health service 'x'") == 1
    log_unknown_service("channel", ServiceUnknown(1, ""), logged_services)
    assert "the server does not report its own health" in caplog.text
