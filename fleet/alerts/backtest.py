"""Would a rule have fired? Played over the history of changes, with the same numbers as live. Pure.

A rule is played by itself: what would have explained or silenced its incidents is not. docs/alerts.md, "Back-test".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from operator import attrgetter

from fleet.alerts.facts import RATE_SECONDS
from fleet.alerts.notifications import duration_words
from fleet.alerts.rules import Rule, RuleKind
from fleet.vocabulary.instances import FAULTS
from fleet.vocabulary.verdicts import HARMED, LOST_OR_AT_RISK, State

_WATCHED = {
    RuleKind.STRANDED: State.STRANDED.slug,
    RuleKind.AT_RISK: State.AT_RISK.slug,
    RuleKind.EXCESS: State.EXCESS.slug,
}
_LOST = frozenset(state.slug for state in LOST_OR_AT_RISK)
_HARMED = frozenset(state.slug for state in HARMED)
_SICK = frozenset(state.slug for state in FAULTS)
#: What the history calls that which is no instance, before the cluster's name.
_BACKEND, _CLUSTER = "backend/", "cluster/"
#: Kinds that are about instances, and which of their turns are looked at.
_TURNING: Mapping[RuleKind, Callable[[str], bool]] = {
    RuleKind.INSTANCE: lambda instance: not instance.startswith((_BACKEND, _CLUSTER)),
    RuleKind.BACKEND: lambda instance: instance.startswith(_BACKEND),
    RuleKind.UNREACHABLE: lambda instance: instance.startswith(_CLUSTER),
}
#: Kinds that the history of instances can answer for.
BY_INSTANCES = frozenset(_TURNING)
#: Why others cannot be played.
UNPLAYABLE: Mapping[RuleKind, str] = {
    RuleKind.BLIND: "While nobody polled nothing was written down, so this rule cannot be played over the history.",
    RuleKind.DRIFT: "The history holds no policies, so this rule cannot be played over it.",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One agent's change of state."""

    at: float
    agent: str
    old: str
    new: str
    cause: str = ""
    #: Number of the round that found it; 0: not known.
    round: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """One instance's change of state."""

    at: float
    instance: str
    new: str
    round: int = 0


@dataclass(frozen=True, slots=True)
class Spell:
    """One time the rule would have fired."""

    cause: str
    began_at: float
    ended_at: float
    peak: int
    #: Rounds it held in; None: not over, or nobody counts them.
    rounds: int | None = None

    @property
    def seconds(self) -> float:
        """How long it would have lasted."""
        return self.ended_at - self.began_at


def play(
    rule: Rule,
    changes: Iterable[Change],
    agents: int,
    until: float,
    labelled: Collection[str] | None = None,
    turns: Iterable[Turn] = (),
) -> list[Spell]:
    """The times a rule would have fired until then, oldest first.

    `changes` and `turns` are oldest first; `labelled`: ids of agents with its label.
    """
    if rule.label and labelled is not None:
        changes = (change for change in changes if change.agent in labelled)
    if rule.kind in _TURNING:
        wanted = (turn for turn in turns if _TURNING[rule.kind](turn.instance))
        spells = _by_turns(wanted, changes, until)
        if rule.kind is RuleKind.UNREACHABLE:
            spells = [replace(spell, peak=agents) for spell in spells]
    elif rule.kind is RuleKind.RATE:
        spells = _by_rate(changes, rule.threshold(agents), until)
    else:
        spells = _by_count(_WATCHED[rule.kind], changes, rule.threshold(agents), until)
    return sorted(_fired(spells, rule), key=lambda spell: spell.began_at)


def sentence(spells: Sequence[Spell], days: float) -> str:
    """`Would have fired 3 times in 7 days, longest 12 min.`"""
    period = f"{days:g} day{'s' if days != 1 else ''}" if days >= 1 else duration_words(days * 86400.0)
    if not spells:
        return f"Would not have fired in {period}."
    times = "once" if len(spells) == 1 else f"{len(spells)} times"
    return f"Would have fired {times} in {period}, longest {duration_words(max(s.seconds for s in spells))}."


class _Counts:
    """How many agents are in one of some states now, by cause."""

    def __init__(self, states: Collection[str]) -> None:
        self._states = states
        self._where: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def __getitem__(self, cause: str) -> int:
        return self._counts.get(cause, 0)

    def take(self, change: Change) -> Iterator[str]:
        """Take a change in, and answer the causes whose number may be another one now."""
        left = self._where.pop(change.agent, None)
        if left is not None:
            self._counts[left] -= 1
            yield left
        if change.new in self._states:
            self._where[change.agent] = change.cause
            self._counts[change.cause] = self[change.cause] + 1
            if change.cause != left:
                yield change.cause


class _Holding:
    """What holds now, by cause, and what held before."""

    def __init__(self) -> None:
        self._began: dict[str, tuple[float, int]] = {}
        self._peaks: dict[str, int] = {}
        self._over: list[Spell] = []

    def __contains__(self, cause: str) -> bool:
        return cause in self._began

    def holds(self, cause: str, event: Change | Turn, count: int) -> None:
        self._began.setdefault(cause, (event.at, event.round))
        self._peaks[cause] = max(self._peaks.get(cause, 0), count)

    def ends(self, cause: str, event: Change | Turn) -> None:
        if cause in self._began:
            at, number = self._began.pop(cause)
            self._over.append(
                Spell(cause, at, event.at, self._peaks.pop(cause), _rounds(number, event.round))
            )

    def spells(self, until: float) -> list[Spell]:
        lasting = (Spell(cause, at, until, self._peaks[cause]) for cause, (at, _) in self._began.items())
        return [*self._over, *lasting]


def _rounds(first: int, last: int) -> int | None:
    # They are numbered by time and interval: with another interval the numbers begin elsewhere.
    return last - first if 0 < first <= last else None


def _by_count(state: str, changes: Iterable[Change], threshold: int, until: float) -> list[Spell]:
    counts, holding = _Counts({state}), _Holding()
    for change in changes:
        for cause in tuple(counts.take(change)):
            if counts[cause] >= threshold:
                holding.holds(cause, change, counts[cause])
            else:
                holding.ends(cause, change)
    return holding.spells(until)


def _by_turns(turns: Iterable[Turn], changes: Iterable[Change], until: float) -> list[Spell]:
    counts, holding = _Counts(_HARMED), _Holding()
    both: tuple[Iterable[Change | Turn], Iterable[Change | Turn]] = (changes, turns)
    for event in merge(*both, key=attrgetter("at")):
        if isinstance(event, Change):
            for cause in counts.take(event):
                if cause in holding:
                    holding.holds(cause, event, counts[cause])
        elif event.new in _SICK:
            holding.holds(event.instance, event, counts[event.instance])
        else:
            holding.ends(event.instance, event)
    return holding.spells(until)


def _by_rate(changes: Iterable[Change], threshold: int, until: float) -> list[Spell]:
    lost: list[float] = []
    spells: list[Spell] = []
    for change in changes:
        if change.new not in _LOST or change.old in _LOST:
            continue
        lost = [at for at in lost if change.at - at < RATE_SECONDS] + [change.at]
        if len(lost) < threshold:
            continue
        end = min(change.at + RATE_SECONDS, until)
        if spells and change.at <= spells[-1].ended_at:
            spells[-1] = Spell("", spells[-1].began_at, end, max(spells[-1].peak, len(lost)))
        else:
            spells.append(Spell("", change.at, end, len(lost)))
    return spells


def _fired(spells: Iterable[Spell], rule: Rule) -> list[Spell]:
    """Those that lasted long enough, each with what came back at its cause before it was resolved."""
    fired: list[Spell] = []
    last: dict[str, int] = {}
    for spell in sorted(spells, key=lambda one: one.began_at):
        at = last.get(spell.cause)
        if at is not None and spell.began_at - fired[at].ended_at < rule.recover_seconds:
            before = fired[at]
            fired[at] = Spell(spell.cause, before.began_at, spell.ended_at, max(before.peak, spell.peak))
        elif spell.seconds >= rule.pending_seconds and (
            spell.rounds is None or spell.rounds >= rule.pending_rounds
        ):
            last[spell.cause] = len(fired)
            fired.append(spell)
    return fired
