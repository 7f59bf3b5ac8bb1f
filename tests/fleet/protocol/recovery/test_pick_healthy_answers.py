"""What the balancer makes of answers that do not come, that fail, or that name what a server does not have."""

from __future__ import annotations

import pytest

from fleet.protocol.recovery.pick_healthy import Connectivity, Open, Retire, RetireReason, ServerHealth, Watch
from fleet.protocol.recovery.service_config import PickHealthyMode, ServiceConfig
from tests.fakes.balancer_shell import FAILURE, PICK_FIRST, READY, RECONNECT, Shell, healthy_shell

NAMED = ServiceConfig(PickHealthyMode.RECONNECT, "fleet.Agents")
CONNECTING = Connectivity.CONNECTING


def test_failed_question_does_not_make_a_backup_healthy() -> None:
    """Its health decides, by the last known policy: a sick backup is not taken, and RPCs stay where they are."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer().turned(1, READY).failed(1)
    assert (shell.balancer.active_id, shell.open) == (0, [0, 1])
    shell.told(1, ServerHealth.UNHEALTHY)
    assert (shell.balancer.active_id, shell.balancer.picked_id, shell.waits) == (0, 0, 2.5)
    assert Watch(1, 1, None) not in shell.said
    shell.told(0, ServerHealth.HEALTHY)
    assert (shell.balancer.active_id, shell.open) == (0, [0])


def test_backup_whose_question_failed_is_taken_when_its_health_is_told() -> None:
    """The last known policy stays in force there: the new server is left when it falls sick."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer().turned(1, READY).failed(1)
    shell.told(1, ServerHealth.HEALTHY)
    assert (shell.balancer.active_id, shell.balancer.mode) == (1, PickHealthyMode.RECONNECT)
    assert shell.balancer.health_check
    shell.told(1, ServerHealth.UNHEALTHY)
    assert shell.waits == 0.125


def test_health_that_was_told_before_the_question_failed_counts() -> None:
    """The watch began with the question: either may end first."""
    shell = healthy_shell().told(0, ServerHealth.UNHEALTHY).timer().turned(1, READY)
    shell.told(1, ServerHealth.UNHEALTHY).failed(1)
    assert (shell.balancer.active_id, shell.waits) == (0, 2.5)


def test_failed_question_keeps_the_watch_of_the_active_connection() -> None:
    """A connection that was lost and made anew: NOT_SERVING still leads to another server."""
    shell = healthy_shell().turned(0, FAILURE).turned(0, READY).failed(0)
    assert shell.balancer.connectivity is CONNECTING
    shell.told(0, ServerHealth.UNHEALTHY)
    assert (shell.balancer.connectivity, shell.waits) == (FAILURE, 0.125)
    shell.timer()
    assert shell.said[-1] == Open(1, shuffle=True)
    # The answer comes after all, and says what was assumed: nothing is watched anew.
    watches = sum(isinstance(command, Watch) for command in shell.said)
    shell.configured(0, RECONNECT)
    assert sum(isinstance(command, Watch) for command in shell.said) == watches


def test_failed_question_before_any_policy_is_known() -> None:
    """The default is in force: pick_first."""
    shell = Shell().turned(0, READY).failed(0)
    assert (shell.balancer.mode, shell.balancer.connectivity) == (PickHealthyMode.PICK_FIRST, READY)
    assert (shell.balancer.health_check, shell.balancer.wake_at) == (False, None)


def test_server_without_policies_between_two_that_have_them() -> None:
    """It is not watched, and the policy known before it is in force on the next connection."""
    shell = healthy_shell().turned(0, FAILURE).connect(0, None)
    assert shell.balancer.connectivity is READY
    shell.turned(0, FAILURE).turned(0, READY).failed(0)
    assert shell.said[-1] == Watch(0, 3, "")
    assert shell.balancer.connectivity is CONNECTING


def test_renewal_whose_question_failed_needs_its_health_too() -> None:
    """A healthy connection is not given up for one of which nothing is known."""
    shell = healthy_shell(reconnect_every=60.0).timer().turned(1, READY).failed(1)
    assert shell.balancer.active_id == 0
    shell.told(1, ServerHealth.UNHEALTHY)
    assert (shell.balancer.active_id, shell.open) == (0, [0])
    assert shell.said[-1] == Retire(1, None, RetireReason.RENEWAL_FAILED)


def test_state_in_pick_first_does_not_wait_for_the_policy() -> None:
    """As gRPC's pick_first: a connection that stands is READY, also while the question hangs."""
    shell = Shell().turned(0, READY)
    assert shell.balancer.connectivity is READY
    shell = Shell().connect(0, PICK_FIRST).turned(0, FAILURE).turned(0, READY)
    assert shell.balancer.connectivity is READY


@pytest.mark.parametrize(
    ("health", "state"), [(ServerHealth.HEALTHY, READY), (ServerHealth.UNHEALTHY, FAILURE)]
)
def test_state_where_health_is_checked_is_what_the_watch_says(
    health: ServerHealth, state: Connectivity
) -> None:
    """gRFC A17: CONNECTING before the first status. The question for the policy may hang meanwhile."""
    shell = healthy_shell().turned(0, FAILURE).turned(0, READY)
    assert shell.balancer.connectivity is CONNECTING
    shell.told(0, health)
    assert shell.balancer.connectivity is state


def test_sick_server_whose_policy_hangs_is_left_as_soon_as_any() -> None:
    """NOT_SERVING needs no policy to be believed; SERVING does, before a backup takes over."""
    shell = healthy_shell().turned(0, FAILURE).turned(0, READY).told(0, ServerHealth.UNHEALTHY)
    assert shell.waits == 0.125
    shell.timer().turned(1, READY).told(1, ServerHealth.HEALTHY)
    assert shell.balancer.active_id == 0


def test_health_checks_that_begin_on_a_connection_that_stands() -> None:
    """The policy comes after READY. gRPC knows no way back to CONNECTING: the state stays until the watch speaks."""
    shell = Shell().turned(0, READY).configured(0, RECONNECT)
    assert (shell.balancer.connectivity, shell.balancer.wake_at) == (READY, shell.now + 31.5)
    shell.told(0, ServerHealth.HEALTHY)
    assert (shell.balancer.connectivity, shell.balancer.wake_at) == (READY, None)
    shell.told(0, ServerHealth.UNHEALTHY)
    assert shell.balancer.connectivity is FAILURE


def test_service_that_the_server_does_not_know() -> None:
    """The health of the whole server counts: no other server is tried for a wrong name, and a sick one is left."""
    shell = Shell().connect(0, NAMED)
    assert shell.said[-1] == Watch(0, 1, "fleet.Agents")
    shell.service_unknown(0)
    assert shell.said[-1] == Watch(0, 1, "")
    assert shell.balancer.unknown_service == "fleet.Agents"
    shell.told(0, ServerHealth.HEALTHY)
    assert (shell.balancer.connectivity, shell.balancer.wake_at) == (READY, None)
    assert shell.balancer.health_check
    shell.told(0, ServerHealth.UNHEALTHY)
    assert (shell.balancer.connectivity, shell.waits) == (FAILURE, 0.125)


def test_service_that_the_server_does_not_know_is_watched_once() -> None:
    """It is watched before the policy is there; the policy says the same name, and nothing is watched anew."""
    shell = Shell().connect(0, NAMED).told(0, ServerHealth.UNHEALTHY).timer().turned(1, READY)
    shell.service_unknown(1).told(1, ServerHealth.HEALTHY)
    watches = sum(isinstance(command, Watch) for command in shell.said)
    shell.configured(1, NAMED)
    assert shell.balancer.active_id == 1
    assert sum(isinstance(command, Watch) for command in shell.said) == watches


def test_server_that_does_not_know_its_own_health() -> None:
    """There is nothing else to watch: it is not SERVING."""
    shell = Shell().connect(0).service_unknown(0)
    assert (shell.balancer.connectivity, shell.balancer.unknown_service) == (FAILURE, "")


def test_status_of_another_service_is_no_news() -> None:
    """A watch that was ended may have said one thing more."""
    shell = Shell().connect(0, NAMED).turned(0, FAILURE).turned(0, READY).service_unknown(0)
    assert shell.balancer.on_health(0, 2, "fleet.Agents", ServerHealth.HEALTHY, shell.now, 0.5) == []
    assert shell.balancer.connectivity is CONNECTING
    assert shell.balancer.on_service_unknown(0, 2, "fleet.Agents", shell.now, 0.5) == []
