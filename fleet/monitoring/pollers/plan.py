"""Plan of a round: instances in shards, and auths for the lists. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleet.monitoring.classify import instance_state, preference_key_of
from fleet.monitoring.evidence import Timing
from fleet.vocabulary.instances import READABLE_STATES, InstanceFacts, InstanceKind, ServingStatus

#: Seconds after its expiry until an instance that is not responding is no longer polled.
_FORGET_AFTER_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Shard:
    """Instances that one task polls."""

    number: int
    instances: tuple[int, ...]
    #: The shard also reads the lists; one shard per round does.
    reads_lists: bool


def plan_shards(instances: Mapping[int, InstanceFacts], size: int, now: float) -> tuple[Shard, ...]:
    """Return the instances in shards of at most `size`; at least one shard, for the lists."""
    indices = [index for index, facts in sorted(instances.items()) if should_poll(facts, now)]
    slices = [indices[start : start + size] for start in range(0, len(indices), size)] or [[]]
    return tuple(
        Shard(number, tuple(shard_indices), reads_lists=number == 0)
        for number, shard_indices in enumerate(slices)
    )


def should_poll(facts: InstanceFacts, now: float) -> bool:
    """Return whether to poll an instance: not when it is deregistered, nor long after it expired without responding."""
    if not facts.poll_address or facts.gone_at is not None:
        return False
    if facts.expires_at is None or facts.expires_at > now - _FORGET_AFTER_SECONDS:
        return True
    return any(attempt.ok for attempt in facts.attempts)


def select_list_auths(
    instances: Iterable[InstanceFacts],
    bootstrap_addresses: Sequence[str],
    last_auth_index: int | None,
    now: float,
    timing: Timing,
) -> list[tuple[int | None, str]]:
    """Return auths for the lists as (index, address), best first: healthy ones, the last used of equals, unknown ones.

    A failing auth is never used: its lists may be old. Degraded and draining auths come after others. Bootstrap
    addresses come last, unless they are addresses of known auths.
    """
    auths = [
        facts
        for facts in instances
        if facts.kind is InstanceKind.AUTH and facts.address and should_poll(facts, now)
    ]
    states = {facts.index: instance_state(facts, now, timing) for facts in auths}
    usable = [facts for facts in auths if states[facts.index] in READABLE_STATES]
    usable.sort(
        key=lambda facts: (
            READABLE_STATES.index(states[facts.index]),
            preference_key_of(facts, now, timing),
            facts.index != last_auth_index,
            facts.index,
        )
    )
    known_addresses = {facts.address for facts in auths}
    return [
        *((facts.index, facts.address) for facts in usable),
        *((None, address) for address in bootstrap_addresses if address not in known_addresses),
    ]


def find_admin_addresses(instances: Iterable[InstanceFacts], now: float, timing: Timing) -> list[str]:
    """Return addresses of auths for requests of operators, best first: serving ones, ordered by `preference_key_of`.

    The caller tries the next address when an auth does not respond.
    """
    auths = [
        facts
        for facts in instances
        if facts.kind is InstanceKind.AUTH and facts.address and facts.gone_at is None
    ]
    auths.sort(
        key=lambda facts: (facts.serving is not ServingStatus.SERVING, preference_key_of(facts, now, timing))
    )
    return [facts.address for facts in auths]
