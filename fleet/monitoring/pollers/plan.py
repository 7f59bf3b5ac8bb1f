"""Which instances a round asks, in which shards, and which auth is asked for the lists. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleet.monitoring.classify import instance_state, preference
from fleet.monitoring.evidence import Timing
from fleet.vocabulary.instances import READABLE, InstanceFacts, InstanceKind, ServingStatus

#: An instance that expired this long ago and does not answer is asked no more; seconds.
_FORGET_AFTER = 600.0


@dataclass(frozen=True, slots=True)
class Shard:
    """The instances one task asks."""

    number: int
    instances: tuple[int, ...]
    #: It asks for the lists as well: one shard of a round does.
    lists: bool


def plan(instances: Mapping[int, InstanceFacts], size: int, now: float) -> tuple[Shard, ...]:
    """Cut the instances into shards of at most `size`; always at least one, for the lists."""
    asked = [index for index, facts in sorted(instances.items()) if is_asked(facts, now)]
    cuts = [asked[start : start + size] for start in range(0, len(asked), size)] or [[]]
    return tuple(Shard(number, tuple(cut), lists=number == 0) for number, cut in enumerate(cuts))


def is_asked(facts: InstanceFacts, now: float) -> bool:
    """Tell whether polling it can say anything: not when it deregistered, nor long after it expired in silence."""
    if not facts.address or facts.gone_at is not None:
        return False
    if facts.expires_at is None or facts.expires_at > now - _FORGET_AFTER:
        return True
    return any(attempt.ok for attempt in facts.attempts)


def lists_from(
    instances: Iterable[InstanceFacts],
    bootstrap: Sequence[str],
    last: int | None,
    now: float,
    timing: Timing,
) -> list[tuple[int | None, str]]:
    """Auths to ask for the lists, best first, as (index, address): healthy ones, the last one of equals, unknown ones.

    A sick one is never asked: it would serve what it last heard. Others are preferred to one that is Degraded or
    drains. Where to begin comes last, unless it is one of those.
    """
    auths = [facts for facts in instances if facts.kind is InstanceKind.AUTH and is_asked(facts, now)]
    states = {facts.index: instance_state(facts, now, timing) for facts in auths}
    usable = [facts for facts in auths if states[facts.index] in READABLE]
    usable.sort(
        key=lambda facts: (
            READABLE.index(states[facts.index]),
            preference(facts, now, timing),
            facts.index != last,
            facts.index,
        )
    )
    known = {facts.address for facts in auths}
    return [
        *((facts.index, facts.address) for facts in usable),
        *((None, address) for address in bootstrap if address not in known),
    ]


def operators_auths(instances: Iterable[InstanceFacts], now: float, timing: Timing) -> list[str]:
    """Addresses of auths for what operators ask, best first: those that serve, and of these as `preference` says.

    All of them: who asks goes on to the next one when one does not answer.
    """
    auths = [
        one for one in instances if one.kind is InstanceKind.AUTH and one.address and one.gone_at is None
    ]
    auths.sort(key=lambda one: (one.serving is not ServingStatus.SERVING, preference(one, now, timing)))
    return [one.address for one in auths]
