"""The balancer, event by event. Upstream's tests by their names: TestPickFirstModeHealthAndReconnect and so on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.protocol.recovery.pick_healthy import (
    BalancerSettings,
    Connectivity,
    Open,
    RequestConfig,
    Retire,
    RetireReason,
    ServerHealth,
    Watch,
    backup_wait,
)
from fleet.protocol.recovery.service_config import PickHealthyMode, ServiceConfig
from tests.fakes.balancer_shell import FAILURE, PICK_FIRST, READY, RECONNECT, Shell, healthy_shell


def test_starts_as_pick_first() -> None:
    """One connection in the order given; RPCs go to it at once, and its config is asked for when it stands."""
    shell = Shell()
    assert shell.said == [Open(0, shuffle=False)]
    assert (shell.balancer.picked_id, shell.balancer.connectivity) == (0, Connectivity.IDLE)
    shell.turned(0, READY)
    assert shell.said[-1] == RequestConfig(0, 1)
    assert (shell.balancer.connectivity, shell.balancer.mode) == (READY, PickHealthyMode.PICK_FIRST)
    shell.configured(0, PICK_FIRST)
    assert shell.balancer.connectivity is READY
    assert shell.balancer.wake_at is None


def test_pick_first_mode_health_and_reconnect() -> None:
    """TestPickFirstModeHealthAndReconnect: no watch, no second connection; a lost one is pick_first's own business."""
    shell = Shell().connect(0, ServiceConfig(PickHealthyMode.PICK_FIRST, ""))
    assert not any(isinstance(command, Watch) for command in shell.said)
    shell.told(0, ServerHealth.UNHEALTHY)
    assert (shell.open, shell.balancer.wake_at) == ([0], None)
    shell.turned(0, FAILURE)
    assert (shell.open, shell.balancer.wake_at, shell.balancer.picked_id) == ([0], None, 0)
    assert shell.balancer.connectivity is FAILURE
    shell.connect(0, PICK_FIRST)
    assert shell.said[-1] == RequestConfig(0, 2)


def test_reconnect_mode_health_and_reconnect() -> None:
    """TestReconnectModeHealthAndReconnect: it moves; with only an unhealthy server left RPCs go there still."""
    shell = healthy_shell()
    assert shell.said[-1] == Watch(0, 1, "")
    assert shell.balancer.health_check
    shell.told(0, ServerHealth.UNHEALTHY)
    assert shell.balancer.connectivity is FAILURE
    assert (shell.balancer.picked_id, shell.waits) == (0, 0.125)
    shell.timer()
    assert shell.said[-1] == Open(1, shuffle=True)
    shell.connect(1)
    assert (shell.balancer.picked_id, shell.open) == (0, [0, 1])
    shell.told(1, ServerHealth.HEALTHY)
    assert (shell.balancer.picked_id, shell.open) == (1, [1])
    assert shell.said[-1] == Retire(0, None, RetireReason.MOVED)
    assert shell.balancer.wake_at is None
    # Now the last one falls sick too, and every other attempt leads back to sick ones.
    shell.told(1, ServerHealth.UNHEALTHY).timer().unhealthy(2)
    assert (shell.balancer.picked_id, shell.balancer.connectivity) == (1, FAILURE)


def test_balancer_mode_change() -> None:
    """TestBalancerModeChange: the mode is learnt anew with each connection, in both directions."""
    shell = Shell().connect(0, PICK_FIRST).turned(0, FAILURE).healthy(0)
    assert shell.balancer.mode is PickHealthyMode.RECONNECT
    shell.told(0, ServerHealth.UNHEALTHY)
    assert shell.balancer.wake_at is not None
    shell.turned(0, FAILURE)
    # Lost, and not answered yet: it is still what it was.
    assert shell.balancer.mode is PickHealthyMode.RECONNECT
    shell.connect(0, PICK_FIRST)
    assert (shell.balancer.mode, shell.balancer.wake_at) == (PickHealthyMode.PICK_FIRST, None)


def test_connect_timeout() -> None:
    """TestConnectTimeout: the active connection's config never comes; another is tried, and takes over."""
    shell = healthy_shell()
    shell.turned(0, FAILURE).turned(0, READY)
    assert shell.waits == 30.0 * 1.05
    shell.timer()
    assert shell.open == [0, 1]
    shell.healthy(1)
    assert shell.open == [1]


def test_connect_timeout_of_backup() -> None:
    """A backup that comes to nothing is replaced too; upstream waits for it for ever."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer()
    shell.turned(1, READY)
    assert shell.waits == 30.0 * 1.05
    shell.timer()
    assert shell.open == [0, 2]
    shell.turned(2, FAILURE).timer()
    assert shell.open == [0, 3]


@pytest.mark.parametrize(
    ("config", "told", "ready"),
    [
        pytest.param(RECONNECT, ServerHealth.HEALTHY, True, id="ready and healthy"),
        pytest.param(None, None, True, id="ready, and the server has no policies"),
        pytest.param(PICK_FIRST, None, True, id="ready and pick_first"),
        pytest.param(
            ServiceConfig(PickHealthyMode.RECONNECT, None), None, True, id="ready, health is not checked"
        ),
        pytest.param(RECONNECT, ServerHealth.UNHEALTHY, False, id="ready and not healthy"),
        pytest.param(RECONNECT, None, False, id="ready and not told"),
    ],
)
def test_balancer_manager_updates(
    config: ServiceConfig | None, told: ServerHealth | None, ready: bool
) -> None:
    """TestBalancerManagerUpdates: when a backup counts as good enough to move to."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer().connect(1, config)
    if told is not None:
        shell.told(1, told)
    assert (shell.balancer.picked_id == 1) is ready


def test_old_connection_that_recovers_first() -> None:
    """Edge case 3 of the RFD: it wins, the attempt is given up and the waits begin anew."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer().unhealthy(1)
    assert shell.waits == 2.5
    shell.told(0, ServerHealth.HEALTHY)
    assert (shell.open, shell.balancer.wake_at, shell.balancer.picked_id) == ([0], None, 0)
    shell.told(0, ServerHealth.UNHEALTHY)
    assert shell.waits == 0.125


def test_old_connection_that_recovers_before_any_attempt() -> None:
    """Nothing is opened at all."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).told(0, ServerHealth.HEALTHY)
    assert (shell.open, shell.balancer.wake_at) == ([0], None)


def test_old_connection_that_recovers_too_late() -> None:
    """Otherwise it will be shut down: what it says after that is nobody's news."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer().healthy(1)
    before = list(shell.said)
    shell.told(0, ServerHealth.HEALTHY).turned(0, FAILURE)
    assert (shell.said, shell.balancer.picked_id) == (before, 1)


def test_backup_that_recovers() -> None:
    """An unhealthy backup stays until the next attempt, and takes over if it recovers first."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer().unhealthy(1).told(1, ServerHealth.HEALTHY)
    assert shell.open == [1]


def test_waits_of_all_attempts() -> None:
    """0 to 250 ms, then upstream's: 2 s to 16 s and half again. One timer, one backup."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY)
    waits = []
    for attempt in range(1, 8):
        waits.append(shell.waits)
        shell.timer()
        assert shell.open == [0, attempt]
        shell.unhealthy(attempt).told(attempt, ServerHealth.UNHEALTHY)
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
    """None is upstream's own: 2 to 3 s from the first attempt on."""
    settings = BalancerSettings(first_wait=first_wait)
    assert [backup_wait(tries, chance, settings) for tries in range(6)] == pytest.approx(expected, rel=1e-4)
    assert backup_wait(100_000, chance, settings) <= 24.0


def test_server_without_health_service() -> None:
    """It is healthy as far as one can know, and nobody claims to watch it."""
    shell = Shell().connect(0).told(0, ServerHealth.HEALTHY, watched=False)
    assert (shell.balancer.connectivity, shell.balancer.health_check) == (READY, False)


def test_server_without_policies_keeps_the_mode() -> None:
    """An old auth behind the same balancer: healthy, no health checks, and still in reconnect mode."""
    shell = healthy_shell().turned(0, FAILURE).connect(0, None)
    assert (shell.balancer.mode, shell.balancer.health_check) == (PickHealthyMode.RECONNECT, False)
    assert shell.balancer.connectivity is READY
    assert Shell().connect(0, None).balancer.mode is PickHealthyMode.PICK_FIRST


def test_config_that_comes_after_a_failure() -> None:
    """The question is asked again: the late answer counts, and the state stays until the watch says otherwise."""
    shell = Shell().turned(0, READY).failed(0).configured(0, RECONNECT)
    assert shell.said[-1] == Watch(0, 1, "")
    assert shell.balancer.connectivity is READY
    shell.told(0, ServerHealth.UNHEALTHY)
    assert shell.waits == 0.125


def test_losing_ready_resets_health() -> None:
    """Whoever answers after a reconnect may be another server: its health is unknown until told."""
    shell = healthy_shell().turned(0, FAILURE)
    assert shell.balancer.connectivity is FAILURE
    shell.turned(0, READY)
    assert shell.balancer.connectivity is Connectivity.CONNECTING
    # READY again without the loss in between having been seen: a new life all the same.
    shell.configured(0, RECONNECT).told(0, ServerHealth.HEALTHY).turned(0, READY)
    assert RequestConfig(0, 3) in shell.said
    assert shell.balancer.connectivity is Connectivity.CONNECTING


def test_health_is_watched_before_the_policy_is_there() -> None:
    """The last policy's service is watched at once; what it says counts when the policy says the same."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer().turned(1, READY)
    assert shell.said[-2:] == [RequestConfig(1, 1), Watch(1, 1, "")]
    shell.told(1, ServerHealth.HEALTHY)
    assert (shell.balancer.active_id, shell.open) == (0, [0, 1])
    shell.configured(1, RECONNECT)
    assert (shell.balancer.active_id, shell.balancer.health_check) == (1, True)
    assert shell.said[-1] == Retire(0, None, RetireReason.MOVED)


@pytest.mark.parametrize(
    ("config", "watch"),
    [
        pytest.param(PICK_FIRST, Watch(1, 1, None), id="pick_first"),
        pytest.param(None, Watch(1, 1, None), id="no policy"),
        pytest.param(ServiceConfig(PickHealthyMode.RECONNECT, None), Watch(1, 1, None), id="no health check"),
        pytest.param(
            ServiceConfig(PickHealthyMode.RECONNECT, "other"), Watch(1, 1, "other"), id="another service"
        ),
    ],
)
def test_health_that_was_watched_for_nothing(config: ServiceConfig | None, watch: Watch) -> None:
    """The policy says something else: what was heard is forgotten, and the watch ended."""
    shell = (
        healthy_shell()
        .told(0, ServerHealth.UNHEALTHY)
        .timer()
        .turned(1, READY)
        .told(1, ServerHealth.UNHEALTHY)
    )
    shell.configured(1, config)
    assert watch in shell.said
    assert (shell.balancer.active_id == 1) is (watch.service is None)
    if watch.service is None:
        shell.told(1, ServerHealth.UNHEALTHY)
        assert shell.balancer.connectivity is READY


def test_health_service_that_is_missing_on_the_next_server() -> None:
    """It was watched before its policy was there, and has no health to watch: healthy, and not watched."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer().turned(1, READY)
    shell.told(1, ServerHealth.HEALTHY, watched=False).configured(1, RECONNECT)
    assert (shell.balancer.active_id, shell.balancer.health_check) == (1, False)


def test_answers_of_an_earlier_life() -> None:
    """They are no news."""
    shell = healthy_shell().turned(0, READY)
    balancer = shell.balancer
    assert balancer.on_config(0, 1, PICK_FIRST, shell.now, 0.5) == []
    assert balancer.on_health(0, 1, "", ServerHealth.UNHEALTHY, shell.now, 0.5) == []
    assert balancer.on_config_request_failed(0, 1, shell.now, 0.5) == []
    assert balancer.on_policy_missing(0, 1, shell.now, 0.5) == []
    assert balancer.on_service_unknown(0, 1, "", shell.now, 0.5) == []
    assert (balancer.mode, balancer.connectivity) == (PickHealthyMode.RECONNECT, Connectivity.CONNECTING)


def test_active_lost_while_backup_is_unhealthy() -> None:
    """An unhealthy server may still answer what a dead connection cannot."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer().unhealthy(1)
    shell.turned(0, FAILURE)
    assert (shell.balancer.picked_id, shell.balancer.active_id) == (1, 0)
    shell.turned(0, READY)
    assert shell.balancer.picked_id == 0


def test_backup_with_another_policy() -> None:
    """A rollout of the policy: a backup's pick_first neither ends the search nor keeps it from taking over."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer().connect(1, PICK_FIRST)
    assert (shell.open, shell.balancer.mode) == ([1], PickHealthyMode.PICK_FIRST)


def test_backup_inherits_the_mode_until_it_answers() -> None:
    """Promoted without an answer it is still in reconnect mode."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer().connect(1, None)
    assert (shell.open, shell.balancer.mode) == ([1], PickHealthyMode.RECONNECT)


@pytest.mark.parametrize(
    ("last", "why"),
    [
        pytest.param(lambda shell: shell.healthy(1), RetireReason.MOVED, id="the backup is healthy"),
        pytest.param(
            lambda shell: shell.told(0, ServerHealth.HEALTHY),
            RetireReason.RECOVERED,
            id="the old one is well first",
        ),
        pytest.param(
            lambda shell: shell.unhealthy(1).timer(), RetireReason.REPLACED, id="the backup is sick too"
        ),
        pytest.param(
            lambda shell: shell.turned(1, FAILURE).timer(),
            RetireReason.REPLACED,
            id="the backup comes to nothing",
        ),
        pytest.param(
            lambda shell: shell.turned(0, FAILURE).connect(0, PICK_FIRST),
            RetireReason.RECOVERED,
            id="pick_first now",
        ),
    ],
)
def test_outcomes(last: Callable[[Shell], object], why: RetireReason) -> None:
    """Each end of a failover says which it is."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer()
    last(shell)
    assert [command.reason for command in shell.said if isinstance(command, Retire)] == [why]


def test_drain_timeout() -> None:
    """Off by default; the RPCs of a connection that was left end by force after it."""
    shell = healthy_shell(drain_timeout=5.0).told(0, ServerHealth.UNHEALTHY).timer().healthy(1)
    assert shell.said[-1] == Retire(0, 5.0, RetireReason.MOVED)


def test_periodic_reconnect() -> None:
    """A healthy connection is left for a new one now and then; long streams stay on the old."""
    shell = healthy_shell(reconnect_every=60.0)
    assert shell.waits == 75.0
    shell.timer()
    assert (shell.open, shell.balancer.picked_id) == ([0, 1], 0)
    shell.healthy(1)
    assert (shell.open, shell.balancer.picked_id, shell.waits) == ([1], 1, 75.0)
    assert shell.said[-1] == Retire(0, None, RetireReason.RENEWED)
    # In pick_first too: whoever wants balance wants it there as well.
    shell = (
        Shell(BalancerSettings(reconnect_every=60.0)).connect(0, PICK_FIRST).timer().connect(1, PICK_FIRST)
    )
    assert shell.open == [1]


@pytest.mark.parametrize("unhealthy", [False, True])
def test_periodic_reconnect_that_fails(unhealthy: bool) -> None:
    """Nothing is lost: the next period tries again."""
    shell = healthy_shell(reconnect_every=60.0).timer()
    if unhealthy:
        shell.unhealthy(1)
    else:
        shell.timer()
    assert (shell.open, shell.balancer.picked_id, shell.waits) == ([0], 0, 75.0)
    assert shell.said[-1] == Retire(1, None, RetireReason.RENEWAL_FAILED)


def test_periodic_reconnect_overtaken_by_a_failover() -> None:
    """The attempt under way serves as the backup."""
    shell = healthy_shell(reconnect_every=60.0).timer().told(0, ServerHealth.UNHEALTHY).unhealthy(1)
    assert shell.open == [0, 1]
    assert shell.waits == 2.5
    shell.told(1, ServerHealth.HEALTHY)
    assert shell.open == [1]


def test_timer_that_fires_early_or_late() -> None:
    """A clock that was wrong by a little changes nothing, and a late one no more than a punctual one."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY)
    assert shell.balancer.wake(shell.now, 0.5) == []
    shell.now += 3600
    shell.timer()
    assert shell.open == [0, 1]
    assert shell.waits == 31.5


def test_connections_of_which_something_is_awaited() -> None:
    """From its making until its health is known, or it failed, or was left; nothing of one that never was."""
    shell = Shell()
    assert shell.balancer.is_undecided(0)
    assert shell.turned(0, READY).balancer.is_undecided(0)
    assert shell.configured(0, RECONNECT).balancer.is_undecided(0)
    assert not shell.told(0, ServerHealth.UNHEALTHY).balancer.is_undecided(0)
    assert not shell.turned(0, FAILURE).balancer.is_undecided(0)
    assert not shell.balancer.is_undecided(7)
