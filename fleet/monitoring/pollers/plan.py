"""Which instances a round asks, in which shards, and which auth is asked for the lists. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleet.monitoring.classify import instance_state, preference_key_of
from fleet.monitoring.evidence import Timing
from fleet.vocabulary.instances import READABLE_STATES, InstanceFacts, InstanceKind, ServingStatus

#: An instance that expired this long ago and does not answer is asked no more; seconds.
_FORGET_AFTER_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Shard:
    """The instances one task asks."""

    number: int
    instances: tuple[int, ...]
    #: It asks for the lists as well: one shard of a round does.
    lists: bool


def plan_shards(instances: Mapping[int, InstanceFacts], size: int, now: float) -> tuple[Shard, ...]:
    """Cut the instances into shards of at most `size`; always at least one, for the lists."""
    indices = [index for index, facts in sorted(instances.items()) if should_poll(facts, now)]
    cuts = [indices[start : start + size] for start in range(0, len(indices), size)] or [[]]
    return tuple(Shard(number, tuple(cut), lists=number == 0) for number, cut in enumerate(cuts))


def should_poll(facts: InstanceFacts, now: float) -> bool:
    """Tell whether polling it can say anything: not when it deregistered, nor long after it expired in silence."""
    if not facts.address or facts.gone_at is not None:
        return False
    if facts.expires_at is None or facts.expires_at > now - _FORGET_AFTER_SECONDS:
        return True
    return any(attempt.ok for attempt in facts.attempts)


def select_list_auths(
    instances: Iterable[InstanceFacts],
    bootstrap: Sequence[str],
    last_index: int | None,
    now: float,
    timing: Timing,
) -> list[tuple[int | None, str]]:
    """Auths to ask for the lists, best first, as (index, address): healthy ones, the last one of equals, unknown ones.

    A sick one is never asked: it would serve what it last heard. Others are preferred to one that is Degraded or
    drains. Where to begin comes last, unless it is one of those.
    """
    auths = [facts for facts in instances if facts.kind is InstanceKind.AUTH and should_poll(facts, now)]
    states = {facts.index: instance_state(facts, now, timing) for facts in auths}
    usable = [facts for facts in auths if states[facts.index] in READABLE_STATES]
    usable.sort(
        key=lambda facts: (
            READABLE_STATES.index(states[facts.index]),
            preference_key_of(facts, now, timing),
            facts.index != last_index,
            facts.index,
        )
    )
    known_addresses = {facts.address for facts in auths}
    return [
        *((facts.index, facts.address) for facts in usable),
        *((None, address) for address in bootstrap if address not in known_addresses),
    ]


def find_admin_addresses(instances: Iterable[InstanceFacts], now: float, timing: Timing) -> list[str]:
    """Addresses of auths for what operators ask, best first: those that serve, and of these as `preference` says.

    All of them: who asks goes on to the next one when one does not answer.
    """
    auths = [
        facts for facts in instances if facts.kind is InstanceKind.AUTH and facts.address and facts.gone_at is None
    ]
    auths.sort(key=lambda facts: (facts.serving is not ServingStatus.SERVING, preference_key_of(facts, now, timing)))
    return [facts.address for facts in auths]
