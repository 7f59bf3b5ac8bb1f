"""Which instances a round asks, in which shards, and which auth is asked for the lists. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleet.classify import instance_state
from fleet.domain.evidence import Timing
from fleet.domain.instances import InstanceFacts, InstanceKind, InstanceState

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
    """Auths to ask for the lists, best first, as (index, address): the last good one, healthy ones, unknown ones.

    A sick one is never asked: it would serve what it last heard. Where to begin comes last, unless it is one of those.
    """
    auths = [facts for facts in instances if facts.kind is InstanceKind.AUTH and is_asked(facts, now)]
    states = {facts.index: instance_state(facts, now, timing) for facts in auths}
    wanted = (InstanceState.OK, InstanceState.UNKNOWN)
    usable = [facts for facts in auths if states[facts.index] in wanted]
    usable.sort(key=lambda facts: (wanted.index(states[facts.index]), facts.index != last, facts.index))
    known = {facts.address for facts in auths}
    return [
        *((facts.index, facts.address) for facts in usable),
        *((None, address) for address in bootstrap if address not in known),
    ]
