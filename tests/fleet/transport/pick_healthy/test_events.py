"""From grpc's words to the balancer's."""

from __future__ import annotations

import logging

import grpc
import pytest

from fleet.protocol.pick_healthy import Ask, Balancer, Health, Watch, Why
from fleet.protocol.service_config import Mode, ServiceConfig
from fleet.transport.pick_healthy.events import (
    Configured,
    Told,
    Turned,
    connectivity_of,
    decide,
    log_left,
    log_refused,
    wait_again,
)
from fleet.transport.service_config import Discovered


def test_a_connection_becomes_healthy() -> None:
    """Each event in turn."""
    balancer = Balancer()
    balancer.start()
    assert decide(balancer, 0, Turned(grpc.ChannelConnectivity.READY), 0.0, 0.0) == [Ask(0, 1)]
    assert connectivity_of(balancer) is grpc.ChannelConnectivity.CONNECTING
    found = Discovered(ServiceConfig(Mode.RECONNECT, "x"), "auth")
    assert decide(balancer, 0, Configured(1, found), 0.0, 0.0) == [Watch(0, 1, "x")]
    assert decide(balancer, 0, Told(1, Health.HEALTHY), 0.0, 0.0) == []
    assert connectivity_of(balancer) is grpc.ChannelConnectivity.READY


@pytest.mark.parametrize("found", [None, Discovered(None)])
def test_no_config(found: Discovered | None) -> None:
    """A question that failed and a server without the service are the same to the balancer."""
    balancer = Balancer()
    balancer.start()
    decide(balancer, 0, Turned(grpc.ChannelConnectivity.READY), 0.0, 0.0)
    assert decide(balancer, 0, Configured(1, found), 0.0, 0.0) == []
    assert connectivity_of(balancer) is grpc.ChannelConnectivity.READY


def test_every_state_of_grpc_is_known() -> None:
    """By name."""
    for state in grpc.ChannelConnectivity:
        decide(Balancer(), 0, Turned(state), 0.0, 0.0)


def test_waits_grow_to_a_ceiling() -> None:
    """1 s to 16 s, and half again."""
    assert [wait_again(tries, 0.0) for tries in (0, 1, 4, 9, 10_000)] == [1.0, 2.0, 16.0, 16.0, 16.0]
    assert wait_again(0, 0.5) == 1.25


def test_every_outcome_has_its_event(caplog: pytest.LogCaptureFixture) -> None:
    """By a stable name; what repeats through an outage is no news."""
    caplog.set_level(logging.DEBUG, logger="fleet.transport.pick_healthy.events")
    for why in Why:
        log_left("auth connection of agent-1", why)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"balancer.{why}" for why in Why
    ]
    quiet = {record.args[0] for record in caplog.records if record.levelno == logging.DEBUG and record.args}
    assert quiet == {Why.REPLACED, Why.RENEWAL_FAILED}


def test_answer_that_cannot_be_read_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Of each server; every one of them counts, and what can be read, or did not come, is none."""
    told: set[str] = set()
    for auth in ("a", "b", "a"):
        assert log_refused("channel", Discovered(None, auth, "it ends too early"), told)
    assert caplog.text.count("service-config.refused") == 2
    for found in (None, Discovered(None), Discovered(ServiceConfig(), "c")):
        assert not log_refused("channel", found, told)
