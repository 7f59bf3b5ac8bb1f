from __future__ import annotations

from dataclasses import replace

from fleet.monitoring.evidence import Timing
from fleet.monitoring.pollers.plan import Shard, find_admin_addresses, plan_shards, select_list_auths
from fleet.protocol.destination.health import ActiveHealth, DrainRequest, Health, HealthReason, HealthSignal
from fleet.vocabulary.instances import InstanceFacts, InstanceKind, PollAttempt, ServingStatus
from fleet.vocabulary.watch import InstanceWatch

NOW = 1000.0
GOOD = (PollAttempt(NOW - 1, ok=True), PollAttempt(NOW - 2, ok=True))
BAD = (PollAttempt(NOW - 1, ok=False, error="x"), PollAttempt(NOW - 2, ok=False, error="x"))


def auth(index: int, **facts: object) -> InstanceFacts:
    """A healthy auth."""
    made = InstanceFacts(
        *(f"auth-{index}-id", index, InstanceKind.AUTH, f"auth-{index}", f"h:{index}"),
        attempts=GOOD,
        serving=ServingStatus.SERVING,
        serving_at=NOW - 1,
    )
    return replace(made, **facts)  # type: ignore[arg-type]  # names of fields


def test_shards_of_a_size() -> None:
    """Everybody once, the lists once."""
    found = plan_shards({index: auth(index) for index in range(5)}, 2, NOW)
    assert found == (Shard(0, (0, 1), True), Shard(1, (2, 3), False), Shard(2, (4,), False))


def test_no_instance_is_known() -> None:
    """One shard all the same, to ask for the lists."""
    assert plan_shards({}, 10, NOW) == (Shard(0, (), lists=True),)


def test_instances_that_need_not_be_asked() -> None:
    """Deregistered, named by others but without an address, or long expired in silence."""
    instances = {
        0: auth(0, gone_at=NOW - 1),
        1: auth(1, address=""),
        2: auth(2, expires_at=NOW - 3600, attempts=BAD),
        3: auth(3, expires_at=NOW - 3600),
        4: auth(4, expires_at=NOW - 5, attempts=BAD),
    }
    assert plan_shards(instances, 10, NOW)[0].instances == (3, 4)


def test_lists_from_the_last_good_auth_first() -> None:
    """Then other healthy ones, then unknown ones, then where to begin; never a sick one."""
    auths = [
        auth(0),
        auth(1, attempts=(), serving=None, serving_at=None),
        auth(2, attempts=BAD, serving=None, serving_at=None),
        auth(3),
        auth(4, serving=ServingStatus.NOT_SERVING),
    ]
    found = select_list_auths(auths, ["h:0", "h:9"], 3, NOW, Timing())
    assert found == [(3, "h:3"), (0, "h:0"), (1, "h:1"), (None, "h:9")]


def seen(health: Health, *, drains: bool = False) -> InstanceWatch:
    """What polls made of an instance."""
    active = ActiveHealth(HealthSignal(health, HealthReason.NOTHING_SEEN, NOW - 60), probed_at=NOW - 1)
    return InstanceWatch(active, drain_request=DrainRequest("upgrade", NOW - 60) if drains else None)


def test_lists_from_an_auth_that_is_well_before_one_that_is_degraded_or_drains() -> None:
    """Even if the last ones came from such a one; when there is no other it is asked all the same."""
    auths = [
        auth(0, watch=seen(Health.DEGRADED)),
        auth(1, watch=seen(Health.HEALTHY, drains=True)),
        auth(2, watch=seen(Health.UNHEALTHY)),
        auth(3, watch=seen(Health.HEALTHY)),
        auth(4, watch=seen(Health.HEALTHY)),
    ]
    found = [index for index, _ in select_list_auths(auths, [], 0, NOW, Timing())]
    assert found == [3, 4, 0, 1, 2]
    assert select_list_auths(auths, [], 4, NOW, Timing())[0] == (4, "h:4")
    assert select_list_auths(auths[:1], [], None, NOW, Timing()) == [(0, "h:0")]


def test_operators_auths_are_those_that_serve_then_by_health() -> None:
    """All of them in the end, but none that deregistered or has no address; what was seen long ago says nothing."""
    auths = [
        auth(0, serving=ServingStatus.NOT_SERVING, watch=seen(Health.HEALTHY)),
        auth(1, watch=seen(Health.HEALTHY, drains=True)),
        auth(2, watch=seen(Health.UNHEALTHY)),
        auth(3, watch=seen(Health.DEGRADED)),
        auth(4, watch=seen(Health.HEALTHY)),
        auth(5, watch=seen(Health.HEALTHY), gone_at=NOW - 1),
        auth(6, address=""),
    ]
    assert find_admin_addresses(auths, NOW, Timing()) == ["h:4", "h:3", "h:1", "h:2", "h:0"]
    assert find_admin_addresses(auths, NOW + 3600, Timing()) == ["h:2", "h:3", "h:4", "h:1", "h:0"]
