"""Would a rule have fired? Played over the history of changes, with the same numbers as live. Pure.

Only rules about agents can be played: the history holds agents, and no instances. docs/alerts.md, "Back-test".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from fleet.alerts.facts import RATE_SECONDS
from fleet.alerts.messages import duration_words
from fleet.alerts.rules import Rule, RuleKind
from fleet.domain.verdicts import State

_WATCHED = {
    RuleKind.STRANDED: State.STRANDED.slug,
    RuleKind.AT_RISK: State.AT_RISK.slug,
    RuleKind.EXCESS: State.EXCESS.slug,
}
_LOST = frozenset({State.STRANDED.slug, State.OFFLINE.slug, State.AT_RISK.slug})
#: Kinds that the history can answer for.
PLAYABLE = frozenset({*_WATCHED, RuleKind.RATE})


@dataclass(frozen=True, slots=True)
class Change:
    """One agent's change of state."""

    at: float
    agent: str
    old: str
    new: str
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Spell:
    """One time the rule would have fired."""

    cause: str
    began_at: float
    ended_at: float
    peak: int

    @property
    def seconds(self) -> float:
        """How long it would have lasted."""
        return self.ended_at - self.began_at


def play(
    rule: Rule, changes: Iterable[Change], agents: int, until: float, labelled: Collection[str] | None = None
) -> list[Spell]:
    """The times a rule would have fired until then, oldest first. `labelled`: ids of agents with its label."""
    if rule.label and labelled is not None:
        changes = (change for change in changes if change.agent in labelled)
    threshold = rule.threshold(agents)
    spells = (
        _by_rate(changes, threshold, until)
        if rule.kind is RuleKind.RATE
        else _by_count(_WATCHED[rule.kind], changes, threshold, until)
    )
    found = [
        spell for spell in _joined(spells, rule.recover_seconds) if spell.seconds >= rule.pending_seconds
    ]
    return sorted(found, key=lambda spell: spell.began_at)


def sentence(spells: Sequence[Spell], days: float) -> str:
    """`Would have fired 3 times in 7 days, longest 12 min.`"""
    period = f"{days:g} day{'s' if days != 1 else ''}"
    if not spells:
        return f"Would not have fired in {period}."
    times = "once" if len(spells) == 1 else f"{len(spells)} times"
    return f"Would have fired {times} in {period}, longest {duration_words(max(s.seconds for s in spells))}."


def _by_count(state: str, changes: Iterable[Change], threshold: int, until: float) -> list[Spell]:
    where: dict[str, str] = {}
    counts: dict[str, int] = {}
    began: dict[str, float] = {}
    peaks: dict[str, int] = {}
    spells = []
    for change in changes:
        left = where.pop(change.agent, None)
        if left is not None:
            counts[left] -= 1
        entered = change.cause if change.new == state else None
        if entered is not None:
            where[change.agent] = entered
            counts[entered] = counts.get(entered, 0) + 1
        for cause in {left, entered} - {None}:
            assert cause is not None, "taken out above"
            count = counts[cause]
            if count >= threshold:
                began.setdefault(cause, change.at)
                peaks[cause] = max(peaks.get(cause, 0), count)
            elif cause in began:
                spells.append(Spell(cause, began.pop(cause), change.at, peaks.pop(cause)))
    return [*spells, *(Spell(cause, at, until, peaks[cause]) for cause, at in began.items())]


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


def _joined(spells: Iterable[Spell], gap: float) -> list[Spell]:
    """Make one of spells of one cause with less than `gap` between them: the incident would still have been open."""
    joined: list[Spell] = []
    last: dict[str, int] = {}
    for spell in sorted(spells, key=lambda one: one.began_at):
        at = last.get(spell.cause)
        if at is not None and spell.began_at - joined[at].ended_at < gap:
            before = joined[at]
            joined[at] = Spell(spell.cause, before.began_at, spell.ended_at, max(before.peak, spell.peak))
        else:
            last[spell.cause] = len(joined)
            joined.append(spell)
    return joined
