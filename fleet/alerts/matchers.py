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
_VALUES_OF_FIELD: Mapping[str, Callable[[Incident], Iterable[str]]] = {
    "cause": lambda incident: (incident.cause.name, incident.cause.id, incident.cause.key),
    "kind": lambda incident: (incident.cause.kind.value,),
    "rule": lambda incident: incident.marks,
    "severity": lambda incident: (incident.severity.slug,),
    "label": lambda incident: incident.labels,
    "agent": lambda incident: (),
}
#: The fields that have a few values only.
_ENUM_VALUES = {"kind": tuple(CauseKind), "severity": tuple(severity.slug for severity in Severity)}
#: `[a-z]` and `[!x]` in a value, as fnmatch reads them.
_CHARACTER_SET = re.compile(r"\[!?\]?[^\]]*\]")
#: What somebody types who means to match everything.
CONFIRMATION_WORD = "everything"


class MatchError(ValueError):
    """A matcher cannot be read; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition; `*` and `?` in the value stand for anything."""

    field: str
    value: str
    is_negated: bool = False

    def matches(self, field_values: Iterable[str]) -> bool:
        """Whether one of the values is meant, or with `!=` none of them."""
        return any(fnmatchcase(field_value, self.value) for field_value in field_values) is not self.is_negated


def parse_matchers(text: str, *, of_routes: bool = False) -> tuple[Matcher, ...]:
    """Read matchers, all of which must hold. Raises MatchError."""
    try:
        terms = shlex.split(text)
    except ValueError as error:
        raise MatchError(f"the quotes do not match in: {text}") from error
    field_names = ROUTE_FIELDS if of_routes else (*INCIDENT_FIELDS, *AGENT_FIELDS)
    matchers = tuple(_parse_term(term, field_names) for term in terms)
    kinds = {matcher.field in AGENT_FIELDS for matcher in matchers}
    if len(kinds) > 1 and not of_routes:
        raise MatchError(
            "match either agents (agent=, label=) or incidents (cause=, kind=, rule=, severity=), not both at once"
        )
    return matchers


def matches_everything(matchers: Sequence[Matcher]) -> bool:
    """Whether nothing is named: no condition, only `*` and sets, all kinds or severities, or only what is left out."""
    return all(matcher.is_negated or _is_wildcard(matcher) for matcher in matchers)


def _is_wildcard(matcher: Matcher) -> bool:
    enum_values = _ENUM_VALUES.get(matcher.field, ())
    matches_all = bool(enum_values) and all(fnmatchcase(enum_value, matcher.value) for enum_value in enum_values)
    return matches_all or not _CHARACTER_SET.sub("?", matcher.value).strip("*?")


def is_agent_matching(matchers: Sequence[Matcher]) -> bool:
    """Whether agents are matched, and not incidents."""
    return any(matcher.field in AGENT_FIELDS for matcher in matchers)


def matches(matchers: Sequence[Matcher], incident: Incident) -> bool:
    """Whether every condition holds of an incident."""
    return all(matcher.matches(_VALUES_OF_FIELD[matcher.field](incident)) for matcher in matchers)


def _parse_term(term: str, field_names: Sequence[str]) -> Matcher:
    field, equals, value = term.partition("=")
    is_negated = field.endswith("!")
    field = field.removesuffix("!")
    if not equals or not value:
        raise MatchError(f"write it as field=value: {term}")
    if field not in field_names:
        raise MatchError(f"there is no field {field} here: use {', '.join(field_names)}")
    return Matcher(field, value, is_negated)
