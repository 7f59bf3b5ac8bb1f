"""Matchers of silences and routes: `cause=proxy-1 severity=critical agent=web-*`. Pure. docs/alerts.md, "Silences"."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from fleet.vocabulary.incidents import CauseKind, Incident, Severity

#: What can be matched of an incident, and of an agent.
INCIDENT_FIELDS = ("cause", "kind", "rule", "severity")
AGENT_FIELDS = ("agent", "label")
#: What routes look at: `label` is that of agents an incident harms.
ROUTE_FIELDS = (*INCIDENT_FIELDS, "label")
#: What an incident has of each field; of agents it keeps no names.
_VALUES: Mapping[str, Callable[[Incident], Iterable[str]]] = {
    "cause": lambda incident: (incident.cause.name, incident.cause.id, incident.cause.key),
    "kind": lambda incident: (incident.cause.kind.value,),
    "rule": lambda incident: incident.marks,
    "severity": lambda incident: (incident.severity.slug,),
    "label": lambda incident: incident.labels,
    "agent": lambda incident: (),
}
#: The fields that have a few values only.
_ALL = {"kind": tuple(CauseKind), "severity": tuple(severity.slug for severity in Severity)}
#: `[a-z]` and `[!x]` in a value, as fnmatch reads them.
_SET = re.compile(r"\[!?\]?[^\]]*\]")
#: What somebody types who means to match everything.
EVERYTHING = "everything"


class MatchError(ValueError):
    """A matcher cannot be read; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition; `*` and `?` in the value stand for anything."""

    field: str
    value: str
    negated: bool = False

    def holds(self, values: Iterable[str]) -> bool:
        """Whether one of the values is meant, or with `!=` none of them."""
        return any(fnmatchcase(value, self.value) for value in values) is not self.negated


def parse(text: str, *, of_routes: bool = False) -> tuple[Matcher, ...]:
    """Read matchers, all of which must hold. Raises MatchError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise MatchError(f"the quotes do not match in: {text}") from error
    known = ROUTE_FIELDS if of_routes else (*INCIDENT_FIELDS, *AGENT_FIELDS)
    matchers = tuple(_parse_word(word, known) for word in words)
    kinds = {matcher.field in AGENT_FIELDS for matcher in matchers}
    if len(kinds) > 1 and not of_routes:
        raise MatchError(
            "match either agents (agent=, label=) or incidents (cause=, kind=, rule=, severity=), not both at once"
        )
    return matchers


def is_everything(matchers: Sequence[Matcher]) -> bool:
    """Whether nothing is named: no condition, only `*` and sets, all kinds or severities, or only what is left out."""
    return all(matcher.negated or _names_nothing(matcher) for matcher in matchers)


def _names_nothing(matcher: Matcher) -> bool:
    values = _ALL.get(matcher.field, ())
    every = bool(values) and all(fnmatchcase(value, matcher.value) for value in values)
    return every or not _SET.sub("?", matcher.value).strip("*?")


def is_of_agents(matchers: Sequence[Matcher]) -> bool:
    """Whether agents are matched, and not incidents."""
    return any(matcher.field in AGENT_FIELDS for matcher in matchers)


def matches(matchers: Sequence[Matcher], incident: Incident) -> bool:
    """Whether every condition holds of an incident."""
    return all(matcher.holds(_VALUES[matcher.field](incident)) for matcher in matchers)


def _parse_word(word: str, known: Sequence[str]) -> Matcher:
    field, equals, value = word.partition("=")
    negated = field.endswith("!")
    field = field.removesuffix("!")
    if not equals or not value:
        raise MatchError(f"write it as field=value: {word}")
    if field not in known:
        raise MatchError(f"there is no field {field} here: use {', '.join(known)}")
    return Matcher(field, value, negated)
