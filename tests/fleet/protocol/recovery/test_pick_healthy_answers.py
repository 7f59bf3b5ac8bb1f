"""The balancer with responses that are missing, failed, or name an unknown service."""

from __future__ import annotations

import pytest

from fleet.protocol.recovery.pick_healthy import (
    Connectivity,
    OpenConnection,
    RetireConnection,
    RetireReason,
    ServerHealth,
    WatchHealth,
)
from fleet.protocol.recovery.service_config import PickHealthyMode, ServiceConfig
from tests.fakes.balancer_driver import FAILURE, PICK_FIRST, READY, RECONNECT, BalancerDriver, healthy_driver

NAMED = ServiceConfig(PickHealthyMode.RECONNECT, "fleet.Agents")
CONNECTING = Connectivity.CONNECTING


def test_failed_config_request_does_not_make_a_backup_healthy() -> None:
    """Its health decides, by the last known policy: calls do not move to an unhealthy backup."""
    driver = (
        healthy_driver()
        .set_health(0, ServerHealth.UNHEALTHY)
        .fire_timer()
        .set_connectivity(1, READY)
        .fail_config_request(1)
    )
    assert (driver.balancer.active_id, driver.open_connections) == (0, [0, 1])
    driver.set_health(1, ServerHealth.UNHEALTHY)
    assert (driver.balancer.active_id, driver.balancer.picked_id, driver.seconds_to_timer) == (0, 0, 2.5)
    assert WatchHealth(1, 1, None) not in driver.commands
    driver.set_health(0, ServerHealth.HEALTHY)
    assert (driver.balancer.active_id, driver.open_connections) == (0, [0])


def test_backup_with_a_failed_config_request_becomes_active_when_healthy() -> None:
    """The last known policy applies: the new server is left when it becomes unhealthy."""
    driver = (
        healthy_driver()
        .set_health(0, ServerHealth.UNHEALTHY)
        .fire_timer()
        .set_connectivity(1, READY)
        .fail_config_request(1)
    )
    driver.set_health(1, ServerHealth.HEALTHY)
    assert (driver.balancer.active_id, driver.balancer.mode) == (1, PickHealthyMode.RECONNECT)
    assert driver.balancer.health_check
    driver.set_health(1, ServerHealth.UNHEALTHY)
    assert driver.seconds_to_timer == 0.125


def test_health_before_the_failed_config_request_counts() -> None:
    """Watch and request start together; either may finish first."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY).fire_timer().set_connectivity(1, READY)
    driver.set_health(1, ServerHealth.UNHEALTHY).fail_config_request(1)
    assert (driver.balancer.active_id, driver.seconds_to_timer) == (0, 2.5)


def test_failed_config_request_keeps_the_watch_of_the_active_connection() -> None:
    """After a reconnect, NOT_SERVING still leads to another server."""
    driver = healthy_driver().set_connectivity(0, FAILURE).set_connectivity(0, READY).fail_config_request(0)
    assert driver.balancer.connectivity is CONNECTING
    driver.set_health(0, ServerHealth.UNHEALTHY)
    assert (driver.balancer.connectivity, driver.seconds_to_timer) == (FAILURE, 0.125)
    driver.fire_timer()
    assert driver.commands[-1] == OpenConnection(1, should_shuffle=True)
    # The late response matches the assumption: there is no new watch.
    watch_count = sum(isinstance(command, WatchHealth) for command in driver.commands)
    driver.set_config(0, RECONNECT)
    assert sum(isinstance(command, WatchHealth) for command in driver.commands) == watch_count


def test_failed_config_request_without_a_known_policy() -> None:
    """The default applies: pick_first."""
    driver = BalancerDriver().set_connectivity(0, READY).fail_config_request(0)
    assert (driver.balancer.mode, driver.balancer.connectivity) == (PickHealthyMode.PICK_FIRST, READY)
    assert (driver.balancer.health_check, driver.balancer.wake_at) == (False, None)


def test_server_without_policies_between_servers_with_policies() -> None:
    """It is not watched; the earlier policy applies to the next connection."""
    driver = healthy_driver().set_connectivity(0, FAILURE).connect(0, None)
    assert driver.balancer.connectivity is READY
    driver.set_connectivity(0, FAILURE).set_connectivity(0, READY).fail_config_request(0)
    assert driver.commands[-1] == WatchHealth(0, 3, "")
    assert driver.balancer.connectivity is CONNECTING


def test_renewal_with_a_failed_config_request_needs_health() -> None:
    """A healthy connection is not replaced by one of unknown health."""
    driver = (
        healthy_driver(reconnect_every=60.0).fire_timer().set_connectivity(1, READY).fail_config_request(1)
    )
    assert driver.balancer.active_id == 0
    driver.set_health(1, ServerHealth.UNHEALTHY)
    assert (driver.balancer.active_id, driver.open_connections) == (0, [0])
    assert driver.commands[-1] == RetireConnection(1, None, RetireReason.RENEWAL_FAILED)


def test_pick_first_is_ready_before_the_policy_arrives() -> None:
    """gRPC's pick_first does the same."""
    driver = BalancerDriver().set_connectivity(0, READY)
    assert driver.balancer.connectivity is READY
    driver = BalancerDriver().connect(0, PICK_FIRST).set_connectivity(0, FAILURE).set_connectivity(0, READY)
    assert driver.balancer.connectivity is READY


@pytest.mark.parametrize(
    ("health", "state"), [(ServerHealth.HEALTHY, READY), (ServerHealth.UNHEALTHY, FAILURE)]
)
def test_state_follows_the_watch(health: ServerHealth, state: Connectivity) -> None:
    """gRFC A17: CONNECTING before the first status, whether the policy has arrived or not."""
    driver = healthy_driver().set_connectivity(0, FAILURE).set_connectivity(0, READY)
    assert driver.balancer.connectivity is CONNECTING
    driver.set_health(0, health)
    assert driver.balancer.connectivity is state


def test_unhealthy_server_is_left_before_its_policy_arrives() -> None:
    """NOT_SERVING counts without a policy; SERVING needs one before a backup becomes active."""
    driver = (
        healthy_driver()
        .set_connectivity(0, FAILURE)
        .set_connectivity(0, READY)
        .set_health(0, ServerHealth.UNHEALTHY)
    )
    assert driver.seconds_to_timer == 0.125
    driver.fire_timer().set_connectivity(1, READY).set_health(1, ServerHealth.HEALTHY)
    assert driver.balancer.active_id == 0


def test_health_checks_start_on_a_ready_connection() -> None:
    """The policy comes after READY. gRPC cannot return to CONNECTING: the state stays until the watch
    reports.
    """
    driver = BalancerDriver().set_connectivity(0, READY).set_config(0, RECONNECT)
    assert (driver.balancer.connectivity, driver.balancer.wake_at) == (READY, driver.now + 31.5)
    driver.set_health(0, ServerHealth.HEALTHY)
    assert (driver.balancer.connectivity, driver.balancer.wake_at) == (READY, None)
    driver.set_health(0, ServerHealth.UNHEALTHY)
    assert driver.balancer.connectivity is FAILURE


def test_unknown_service_falls_back_to_the_whole_server() -> None:
    """A wrong name alone causes no failover; an unhealthy server does."""
    driver = BalancerDriver().connect(0, NAMED)
    assert driver.commands[-1] == WatchHealth(0, 1, "fleet.Agents")
    driver.report_service_unknown(0)
    assert driver.commands[-1] == WatchHealth(0, 1, "")
    assert driver.balancer.unknown_service == "fleet.Agents"
    driver.set_health(0, ServerHealth.HEALTHY)
    assert (driver.balancer.connectivity, driver.balancer.wake_at) == (READY, None)
    assert driver.balancer.health_check
    driver.set_health(0, ServerHealth.UNHEALTHY)
    assert (driver.balancer.connectivity, driver.seconds_to_timer) == (FAILURE, 0.125)


def test_unknown_service_is_watched_once() -> None:
    """It was watched before the policy arrived; the policy has the same name, so there is no new watch."""
    driver = (
        BalancerDriver()
        .connect(0, NAMED)
        .set_health(0, ServerHealth.UNHEALTHY)
        .fire_timer()
        .set_connectivity(1, READY)
    )
    driver.report_service_unknown(1).set_health(1, ServerHealth.HEALTHY)
    watch_count = sum(isinstance(command, WatchHealth) for command in driver.commands)
    driver.set_config(1, NAMED)
    assert driver.balancer.active_id == 1
    assert sum(isinstance(command, WatchHealth) for command in driver.commands) == watch_count


def test_server_with_unknown_overall_health_is_unhealthy() -> None:
    """There is nothing else to watch."""
    driver = BalancerDriver().connect(0).report_service_unknown(0)
    assert (driver.balancer.connectivity, driver.balancer.unknown_service) == (FAILURE, "")


def test_status_of_a_former_watch_is_ignored() -> None:
    """An ended watch may still deliver one status."""
    driver = (
        BalancerDriver()
        .connect(0, NAMED)
        .set_connectivity(0, FAILURE)
        .set_connectivity(0, READY)
        .report_service_unknown(0)
    )
    assert driver.balancer.on_health(0, 2, "fleet.Agents", ServerHealth.HEALTHY, driver.now, 0.5) == []
    assert driver.balancer.connectivity is CONNECTING
    assert driver.balancer.on_service_unknown(0, 2, "fleet.Agents", driver.now, 0.5) == []
