"""The balancer, event by event. Tests with Teleport's names: TestPickFirstModeHealthAndReconnect and so on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.protocol.recovery.pick_healthy import (
    BalancerSettings,
    Connectivity,
    OpenConnection,
    RequestConfig,
    RetireConnection,
    RetireReason,
    ServerHealth,
    WatchHealth,
    backup_wait,
)
from fleet.protocol.recovery.service_config import PickHealthyMode, ServiceConfig
from tests.fakes.balancer_driver import FAILURE, PICK_FIRST, READY, RECONNECT, BalancerDriver, healthy_driver


def test_starts_as_pick_first() -> None:
    """One connection in the given order; calls use it at once, and its config is requested when it is ready."""
    driver = BalancerDriver()
    assert driver.commands == [OpenConnection(0, should_shuffle=False)]
    assert (driver.balancer.picked_id, driver.balancer.connectivity) == (0, Connectivity.IDLE)
    driver.set_connectivity(0, READY)
    assert driver.commands[-1] == RequestConfig(0, 1)
    assert (driver.balancer.connectivity, driver.balancer.mode) == (READY, PickHealthyMode.PICK_FIRST)
    driver.set_config(0, PICK_FIRST)
    assert driver.balancer.connectivity is READY
    assert driver.balancer.wake_at is None


def test_pick_first_mode_health_and_reconnect() -> None:
    """TestPickFirstModeHealthAndReconnect: no watch and no second connection; pick_first itself reconnects."""
    driver = BalancerDriver().connect(0, ServiceConfig(PickHealthyMode.PICK_FIRST, ""))
    assert not any(isinstance(command, WatchHealth) for command in driver.commands)
    driver.set_health(0, ServerHealth.UNHEALTHY)
    assert (driver.open_connections, driver.balancer.wake_at) == ([0], None)
    driver.set_connectivity(0, FAILURE)
    assert (driver.open_connections, driver.balancer.wake_at, driver.balancer.picked_id) == ([0], None, 0)
    assert driver.balancer.connectivity is FAILURE
    driver.connect(0, PICK_FIRST)
    assert driver.commands[-1] == RequestConfig(0, 2)


def test_reconnect_mode_health_and_reconnect() -> None:
    """TestReconnectModeHealthAndReconnect: it moves; if only an unhealthy server is left, calls still go
    there.
    """
    driver = healthy_driver()
    assert driver.commands[-1] == WatchHealth(0, 1, "")
    assert driver.balancer.health_check
    driver.set_health(0, ServerHealth.UNHEALTHY)
    assert driver.balancer.connectivity is FAILURE
    assert (driver.balancer.picked_id, driver.seconds_to_timer) == (0, 0.125)
    driver.fire_timer()
    assert driver.commands[-1] == OpenConnection(1, should_shuffle=True)
    driver.connect(1)
    assert (driver.balancer.picked_id, driver.open_connections) == (0, [0, 1])
    driver.set_health(1, ServerHealth.HEALTHY)
    assert (driver.balancer.picked_id, driver.open_connections) == (1, [1])
    assert driver.commands[-1] == RetireConnection(0, None, RetireReason.MOVED)
    assert driver.balancer.wake_at is None
    # The last server becomes unhealthy, too, and every attempt reaches unhealthy ones.
    driver.set_health(1, ServerHealth.UNHEALTHY).fire_timer().connect_unhealthy(2)
    assert (driver.balancer.picked_id, driver.balancer.connectivity) == (1, FAILURE)


def test_balancer_mode_change() -> None:
    """TestBalancerModeChange: every connection sets the mode anew, in both directions."""
    driver = BalancerDriver().connect(0, PICK_FIRST).set_connectivity(0, FAILURE).connect_healthy(0)
    assert driver.balancer.mode is PickHealthyMode.RECONNECT
    driver.set_health(0, ServerHealth.UNHEALTHY)
    assert driver.balancer.wake_at is not None
    driver.set_connectivity(0, FAILURE)
    # The connection is lost and has no config yet: the mode stays.
    assert driver.balancer.mode is PickHealthyMode.RECONNECT
    driver.connect(0, PICK_FIRST)
    assert (driver.balancer.mode, driver.balancer.wake_at) == (PickHealthyMode.PICK_FIRST, None)


def test_connect_timeout() -> None:
    """TestConnectTimeout: the active connection gets no config; another one is tried, and becomes active."""
    driver = healthy_driver()
    driver.set_connectivity(0, FAILURE).set_connectivity(0, READY)
    assert driver.seconds_to_timer == 30.0 * 1.05
    driver.fire_timer()
    assert driver.open_connections == [0, 1]
    driver.connect_healthy(1)
    assert driver.open_connections == [1]


def test_connect_timeout_of_backup() -> None:
    """A backup without a result is replaced, too; Teleport waits for it for ever."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY).fire_timer()
    driver.set_connectivity(1, READY)
    assert driver.seconds_to_timer == 30.0 * 1.05
    driver.fire_timer()
    assert driver.open_connections == [0, 2]
    driver.set_connectivity(2, FAILURE).fire_timer()
    assert driver.open_connections == [0, 3]


@pytest.mark.parametrize(
    ("config", "health", "is_good"),
    [
        pytest.param(RECONNECT, ServerHealth.HEALTHY, True, id="ready and healthy"),
        pytest.param(None, None, True, id="ready, and the server has no policies"),
        pytest.param(PICK_FIRST, None, True, id="ready and pick_first"),
        pytest.param(
            ServiceConfig(PickHealthyMode.RECONNECT, None), None, True, id="ready, health is not checked"
        ),
        pytest.param(RECONNECT, ServerHealth.UNHEALTHY, False, id="ready and not healthy"),
        pytest.param(RECONNECT, None, False, id="ready, health unknown"),
    ],
)
def test_balancer_manager_updates(
    config: ServiceConfig | None, health: ServerHealth | None, is_good: bool
) -> None:
    """TestBalancerManagerUpdates: the conditions under which a backup becomes active."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY).fire_timer().connect(1, config)
    if health is not None:
        driver.set_health(1, health)
    assert (driver.balancer.picked_id == 1) is is_good


def test_old_connection_recovers_first() -> None:
    """Edge case 3 of the RFD: it stays active, the attempt is dropped and the waits start over."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY).fire_timer().connect_unhealthy(1)
    assert driver.seconds_to_timer == 2.5
    driver.set_health(0, ServerHealth.HEALTHY)
    assert (driver.open_connections, driver.balancer.wake_at, driver.balancer.picked_id) == ([0], None, 0)
    driver.set_health(0, ServerHealth.UNHEALTHY)
    assert driver.seconds_to_timer == 0.125


def test_old_connection_recovers_before_any_attempt() -> None:
    """No connection is opened."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY).set_health(0, ServerHealth.HEALTHY)
    assert (driver.open_connections, driver.balancer.wake_at) == ([0], None)


def test_old_connection_recovers_too_late() -> None:
    """Events of a retired connection are ignored."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY).fire_timer().connect_healthy(1)
    before = list(driver.commands)
    driver.set_health(0, ServerHealth.HEALTHY).set_connectivity(0, FAILURE)
    assert (driver.commands, driver.balancer.picked_id) == (before, 1)


def test_backup_recovers() -> None:
    """An unhealthy backup stays until the next attempt, and becomes active if it recovers first."""
    driver = (
        healthy_driver()
        .set_health(0, ServerHealth.UNHEALTHY)
        .fire_timer()
        .connect_unhealthy(1)
        .set_health(1, ServerHealth.HEALTHY)
    )
    assert driver.open_connections == [1]


def test_waits_of_all_attempts() -> None:
    """0 to 250 ms, then Teleport's 2 s to 16 s plus up to a half. There is one timer and one backup."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY)
    waits = []
    for attempt in range(1, 8):
        waits.append(driver.seconds_to_timer)
        driver.fire_timer()
        assert driver.open_connections == [0, attempt]
        driver.connect_unhealthy(attempt).set_health(attempt, ServerHealth.UNHEALTHY)
    assert waits == [0.125, 2.5, 5.0, 10.0, 20.0, 20.0, 20.0]


@pytest.mark.parametrize(
    ("first_wait", "chance", "expected"),
    [
        (0.25, 0.0, [0.0, 2.0, 4.0, 8.0, 16.0, 16.0]),
        (0.25, 0.999999, [0.25, 3.0, 6.0, 12.0, 24.0, 24.0]),
        (0.0, 0.999999, [0.0, 3.0, 6.0, 12.0, 24.0, 24.0]),
        (None, 0.0, [2.0, 4.0, 8.0, 16.0, 16.0, 16.0]),
        (None, 0.999999, [3.0, 6.0, 12.0, 24.0, 24.0, 24.0]),
    ],
)
def test_waits(first_wait: float | None, chance: float, expected: list[float]) -> None:
    """None uses Teleport's own waits: 2 to 3 s from the first attempt on."""
    settings = BalancerSettings(first_wait=first_wait)
    assert [backup_wait(attempts, chance, settings) for attempts in range(6)] == pytest.approx(
        expected, rel=1e-4
    )
    assert backup_wait(100_000, chance, settings) <= 24.0


def test_server_without_health_service() -> None:
    """It counts as healthy, and not as watched."""
    driver = BalancerDriver().connect(0).set_health(0, ServerHealth.HEALTHY, has_health_service=False)
    assert (driver.balancer.connectivity, driver.balancer.health_check) == (READY, False)


def test_server_without_policies_keeps_the_mode() -> None:
    """An old auth behind the same load balancer: healthy, unwatched, and still in reconnect mode."""
    driver = healthy_driver().set_connectivity(0, FAILURE).connect(0, None)
    assert (driver.balancer.mode, driver.balancer.health_check) == (PickHealthyMode.RECONNECT, False)
    assert driver.balancer.connectivity is READY
    assert BalancerDriver().connect(0, None).balancer.mode is PickHealthyMode.PICK_FIRST


def test_config_after_a_failed_request() -> None:
    """The request is repeated; the late response counts, and the state stays until the watch reports."""
    driver = BalancerDriver().set_connectivity(0, READY).fail_config_request(0).set_config(0, RECONNECT)
    assert driver.commands[-1] == WatchHealth(0, 1, "")
    assert driver.balancer.connectivity is READY
    driver.set_health(0, ServerHealth.UNHEALTHY)
    assert driver.seconds_to_timer == 0.125


def test_losing_ready_resets_health() -> None:
    """After a reconnect the server may be another one: its health is unknown until the watch reports."""
    driver = healthy_driver().set_connectivity(0, FAILURE)
    assert driver.balancer.connectivity is FAILURE
    driver.set_connectivity(0, READY)
    assert driver.balancer.connectivity is Connectivity.CONNECTING
    # READY again without an event for the loss still starts a new life.
    driver.set_config(0, RECONNECT).set_health(0, ServerHealth.HEALTHY).set_connectivity(0, READY)
    assert RequestConfig(0, 3) in driver.commands
    assert driver.balancer.connectivity is Connectivity.CONNECTING


def test_health_is_watched_before_the_policy_arrives() -> None:
    """The last policy's service is watched at once; its health counts when the policy names the same service."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY).fire_timer().set_connectivity(1, READY)
    assert driver.commands[-2:] == [RequestConfig(1, 1), WatchHealth(1, 1, "")]
    driver.set_health(1, ServerHealth.HEALTHY)
    assert (driver.balancer.active_id, driver.open_connections) == (0, [0, 1])
    driver.set_config(1, RECONNECT)
    assert (driver.balancer.active_id, driver.balancer.health_check) == (1, True)
    assert driver.commands[-1] == RetireConnection(0, None, RetireReason.MOVED)


@pytest.mark.parametrize(
    ("config", "watch"),
    [
        pytest.param(PICK_FIRST, WatchHealth(1, 1, None), id="pick_first"),
        pytest.param(None, WatchHealth(1, 1, None), id="no policy"),
        pytest.param(
            ServiceConfig(PickHealthyMode.RECONNECT, None), WatchHealth(1, 1, None), id="no health check"
        ),
        pytest.param(
            ServiceConfig(PickHealthyMode.RECONNECT, "other"),
            WatchHealth(1, 1, "other"),
            id="another service",
        ),
    ],
)
def test_early_watch_of_another_service_is_dropped(config: ServiceConfig | None, watch: WatchHealth) -> None:
    """The policy differs: the early watch ends, and its health is dropped."""
    driver = (
        healthy_driver()
        .set_health(0, ServerHealth.UNHEALTHY)
        .fire_timer()
        .set_connectivity(1, READY)
        .set_health(1, ServerHealth.UNHEALTHY)
    )
    driver.set_config(1, config)
    assert watch in driver.commands
    assert (driver.balancer.active_id == 1) is (watch.service is None)
    if watch.service is None:
        driver.set_health(1, ServerHealth.UNHEALTHY)
        assert driver.balancer.connectivity is READY


def test_next_server_without_a_health_service() -> None:
    """It was watched before its policy arrived; without a health service it counts as healthy and not as
    watched.
    """
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY).fire_timer().set_connectivity(1, READY)
    driver.set_health(1, ServerHealth.HEALTHY, has_health_service=False).set_config(1, RECONNECT)
    assert (driver.balancer.active_id, driver.balancer.health_check) == (1, False)


def test_events_of_an_earlier_life_are_ignored() -> None:
    driver = healthy_driver().set_connectivity(0, READY)
    balancer = driver.balancer
    assert balancer.on_config(0, 1, PICK_FIRST, driver.now, 0.5) == []
    assert balancer.on_health(0, 1, "", ServerHealth.UNHEALTHY, driver.now, 0.5) == []
    assert balancer.on_config_request_failed(0, 1, driver.now, 0.5) == []
    assert balancer.on_policy_missing(0, 1, driver.now, 0.5) == []
    assert balancer.on_service_unknown(0, 1, "", driver.now, 0.5) == []
    assert (balancer.mode, balancer.connectivity) == (PickHealthyMode.RECONNECT, Connectivity.CONNECTING)


def test_active_lost_while_backup_is_unhealthy() -> None:
    """An unhealthy server may still respond; a lost connection cannot."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY).fire_timer().connect_unhealthy(1)
    driver.set_connectivity(0, FAILURE)
    assert (driver.balancer.picked_id, driver.balancer.active_id) == (1, 0)
    driver.set_connectivity(0, READY)
    assert driver.balancer.picked_id == 0


def test_backup_with_another_policy() -> None:
    """During a rollout of the policy a backup with pick_first ends the search and becomes active."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY).fire_timer().connect(1, PICK_FIRST)
    assert (driver.open_connections, driver.balancer.mode) == ([1], PickHealthyMode.PICK_FIRST)


def test_backup_without_a_policy_inherits_the_mode() -> None:
    """It becomes active in reconnect mode."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY).fire_timer().connect(1, None)
    assert (driver.open_connections, driver.balancer.mode) == ([1], PickHealthyMode.RECONNECT)


@pytest.mark.parametrize(
    ("last_event", "expected_reason"),
    [
        pytest.param(
            lambda driver: driver.connect_healthy(1), RetireReason.MOVED, id="the backup is healthy"
        ),
        pytest.param(
            lambda driver: driver.set_health(0, ServerHealth.HEALTHY),
            RetireReason.RECOVERED,
            id="the old one recovers first",
        ),
        pytest.param(
            lambda driver: driver.connect_unhealthy(1).fire_timer(),
            RetireReason.REPLACED,
            id="the backup is unhealthy, too",
        ),
        pytest.param(
            lambda driver: driver.set_connectivity(1, FAILURE).fire_timer(),
            RetireReason.REPLACED,
            id="the backup fails",
        ),
        pytest.param(
            lambda driver: driver.set_connectivity(0, FAILURE).connect(0, PICK_FIRST),
            RetireReason.RECOVERED,
            id="pick_first now",
        ),
    ],
)
def test_reason_of_each_outcome(
    last_event: Callable[[BalancerDriver], object], expected_reason: RetireReason
) -> None:
    """Each retired connection has the reason of the failover's end."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY).fire_timer()
    last_event(driver)
    assert [command.reason for command in driver.commands if isinstance(command, RetireConnection)] == [
        expected_reason
    ]


def test_drain_timeout() -> None:
    """It is off by default; after it, calls on the old connection are cancelled."""
    driver = (
        healthy_driver(drain_timeout=5.0)
        .set_health(0, ServerHealth.UNHEALTHY)
        .fire_timer()
        .connect_healthy(1)
    )
    assert driver.commands[-1] == RetireConnection(0, 5.0, RetireReason.MOVED)


def test_periodic_reconnect() -> None:
    """A healthy connection is replaced periodically; long streams stay on the old one."""
    driver = healthy_driver(reconnect_every=60.0)
    assert driver.seconds_to_timer == 75.0
    driver.fire_timer()
    assert (driver.open_connections, driver.balancer.picked_id) == ([0, 1], 0)
    driver.connect_healthy(1)
    assert (driver.open_connections, driver.balancer.picked_id, driver.seconds_to_timer) == ([1], 1, 75.0)
    assert driver.commands[-1] == RetireConnection(0, None, RetireReason.RENEWED)
    # It works in pick_first mode, too.
    driver = (
        BalancerDriver(BalancerSettings(reconnect_every=60.0))
        .connect(0, PICK_FIRST)
        .fire_timer()
        .connect(1, PICK_FIRST)
    )
    assert driver.open_connections == [1]


@pytest.mark.parametrize("is_unhealthy", [False, True])
def test_periodic_reconnect_fails(is_unhealthy: bool) -> None:
    """The connection stays; the next period tries again."""
    driver = healthy_driver(reconnect_every=60.0).fire_timer()
    if is_unhealthy:
        driver.connect_unhealthy(1)
    else:
        driver.fire_timer()
    assert (driver.open_connections, driver.balancer.picked_id, driver.seconds_to_timer) == ([0], 0, 75.0)
    assert driver.commands[-1] == RetireConnection(1, None, RetireReason.RENEWAL_FAILED)


def test_periodic_reconnect_becomes_a_failover() -> None:
    """The attempt in progress becomes the backup."""
    driver = (
        healthy_driver(reconnect_every=60.0)
        .fire_timer()
        .set_health(0, ServerHealth.UNHEALTHY)
        .connect_unhealthy(1)
    )
    assert driver.open_connections == [0, 1]
    assert driver.seconds_to_timer == 2.5
    driver.set_health(1, ServerHealth.HEALTHY)
    assert driver.open_connections == [1]


def test_timer_that_fires_early_or_late() -> None:
    """An early timer does nothing; a late one does the same as a punctual one."""
    driver = healthy_driver().set_health(0, ServerHealth.UNHEALTHY)
    assert driver.balancer.wake(driver.now, 0.5) == []
    driver.now += 3600
    driver.fire_timer()
    assert driver.open_connections == [0, 1]
    assert driver.seconds_to_timer == 31.5


def test_undecided_connections() -> None:
    """A connection is undecided until its health is known, or it failed, or was retired."""
    driver = BalancerDriver()
    assert driver.balancer.is_undecided(0)
    assert driver.set_connectivity(0, READY).balancer.is_undecided(0)
    assert driver.set_config(0, RECONNECT).balancer.is_undecided(0)
    assert not driver.set_health(0, ServerHealth.UNHEALTHY).balancer.is_undecided(0)
    assert not driver.set_connectivity(0, FAILURE).balancer.is_undecided(0)
    assert not driver.balancer.is_undecided(7)
