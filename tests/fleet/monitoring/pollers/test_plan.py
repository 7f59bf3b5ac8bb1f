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
    facts_of_auth = InstanceFacts(
        *(f"auth-{index}-id", index, InstanceKind.AUTH, f"auth-{index}", f"h:{index}"),
        attempts=GOOD,
        serving=ServingStatus.SERVING,
        serving_at=NOW - 1,
    )
    return replace(facts_of_auth, **facts)  # type: ignore[arg-type]  # names of fields


def test_shards_of_a_size() -> None:
    """Each instance is in one shard; the first shard reads the lists."""
    shards = plan_shards({index: auth(index) for index in range(5)}, 2, NOW)
    assert shards == (Shard(0, (0, 1), True), Shard(1, (2, 3), False), Shard(2, (4,), False))


def test_one_shard_without_known_instances() -> None:
    """The shard reads the lists."""
    assert plan_shards({}, 10, NOW) == (Shard(0, (), reads_lists=True),)


def test_instances_that_are_not_polled() -> None:
    """Deregistered, without an address, or silent and expired long ago."""
    instances = {
        0: auth(0, gone_at=NOW - 1),
        1: auth(1, address=""),
        2: auth(2, expires_at=NOW - 3600, attempts=BAD),
        3: auth(3, expires_at=NOW - 3600),
        4: auth(4, expires_at=NOW - 5, attempts=BAD),
    }
    assert plan_shards(instances, 10, NOW)[0].instances == (3, 4)


def test_instance_with_only_a_diag_address_is_polled() -> None:
    """No list is read from a diag address, and no change is sent there."""
    instances = {0: auth(0, address="", diag_address="h:3000"), 1: auth(1)}
    assert plan_shards(instances, 10, NOW)[0].instances == (0, 1)
    assert instances[0].poll_address == "h:3000"
    assert select_list_auths(instances.values(), [], 0, NOW, Timing()) == [(1, "h:1")]
    assert find_admin_addresses(instances.values(), NOW, Timing()) == ["h:1"]


def test_lists_are_read_from_the_last_good_auth_first() -> None:
    """Then healthy ones, unknown ones and the bootstrap addresses; never a sick one."""
    auths = [
        auth(0),
        auth(1, attempts=(), serving=None, serving_at=None),
        auth(2, attempts=BAD, serving=None, serving_at=None),
        auth(3),
        auth(4, serving=ServingStatus.NOT_SERVING),
    ]
    auths_to_query = select_list_auths(auths, ["h:0", "h:9"], 3, NOW, Timing())
    assert auths_to_query == [(3, "h:3"), (0, "h:0"), (1, "h:1"), (None, "h:9")]


def watch_with(health: Health, *, drains: bool = False) -> InstanceWatch:
    """Return the watch of an instance with this health."""
    active = ActiveHealth(HealthSignal(health, HealthReason.NOTHING_SEEN, NOW - 60), probed_at=NOW - 1)
    return InstanceWatch(active, drain_request=DrainRequest("upgrade", NOW - 60) if drains else None)


def test_lists_are_read_from_healthy_auths_first() -> None:
    """Degraded and draining auths come last, even after the last good one."""
    auths = [
        auth(0, watch=watch_with(Health.DEGRADED)),
        auth(1, watch=watch_with(Health.HEALTHY, drains=True)),
        auth(2, watch=watch_with(Health.UNHEALTHY)),
        auth(3, watch=watch_with(Health.HEALTHY)),
        auth(4, watch=watch_with(Health.HEALTHY)),
    ]
    auths_to_query = [index for index, _ in select_list_auths(auths, [], 0, NOW, Timing())]
    assert auths_to_query == [3, 4, 0, 1, 2]
    assert select_list_auths(auths, [], 4, NOW, Timing())[0] == (4, "h:4")
    assert select_list_auths(auths[:1], [], None, NOW, Timing()) == [(0, "h:0")]


def test_admin_addresses_are_sorted_by_health() -> None:
    """Serving auths first; old health does not count."""
    auths = [
        auth(0, serving=ServingStatus.NOT_SERVING, watch=watch_with(Health.HEALTHY)),
        auth(1, watch=watch_with(Health.HEALTHY, drains=True)),
        auth(2, watch=watch_with(Health.UNHEALTHY)),
        auth(3, watch=watch_with(Health.DEGRADED)),
        auth(4, watch=watch_with(Health.HEALTHY)),
        auth(5, watch=watch_with(Health.HEALTHY), gone_at=NOW - 1),
        auth(6, address=""),
    ]
    assert find_admin_addresses(auths, NOW, Timing()) == ["h:4", "h:3", "h:1", "h:2", "h:0"]
    assert find_admin_addresses(auths, NOW + 3600, Timing()) == ["h:2", "h:3", "h:4", "h:1", "h:0"]
