"""Matchers of silences and routes: `cause=proxy-1|proxy-2 severity=critical agent=web-*`. Pure.

docs/reference/alerts.md, "Silences".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fleet.vocabulary.incidents import CauseKind, Incident, Severity

#: Fields of incidents, and of agents, that matchers can use.
INCIDENT_FIELDS = ("cause", "kind", "rule", "severity")
AGENT_FIELDS = ("agent", "agent_set")
#: Fields that matchers of routes can use; `agent_set` is a set with an affected agent.
ROUTE_FIELDS = (*INCIDENT_FIELDS, "agent_set")
#: The values of an incident by field; it has none for `agent`.
_VALUES_OF_FIELD: Mapping[str, Callable[[Incident], Iterable[str]]] = {
    "cause": lambda incident: (incident.cause.name, incident.cause.id, incident.cause.key),
    "kind": lambda incident: (incident.cause.kind.value,),
    "rule": lambda incident: incident.marks,
    "severity": lambda incident: (incident.severity.slug,),
    "agent_set": lambda incident: incident.agent_sets,
    "agent": lambda incident: (),
}
#: All values of the fields that have only a few.
_ENUM_VALUES = {"kind": tuple(CauseKind), "severity": tuple(severity.slug for severity in Severity)}
#: `[a-z]` and `[!x]` in a value, as in fnmatch.
_CHARACTER_SET = re.compile(r"\[!?\]?[^\]]*\]")
#: `|` between alternatives; not in `[|]`, which stands for the character.
_ALTERNATIVE_SEPARATOR = re.compile(r"\|(?![^\[]*\])")
#: Characters that end or quote a term: a value that contains one is written in quotes.
_NEEDS_QUOTES = re.compile(r"[\s'\"\\]")
#: Maximum length of matchers, characters.
MAX_MATCHERS_LENGTH = 2_000
#: The word to type to confirm matchers that match everything.
CONFIRMATION_WORD = "everything"


class MatcherError(ValueError):
    """A matcher is not valid; the message says why."""


@dataclass(frozen=True)
class Matcher:
    """One condition; its value has one or several patterns (`a|b`), which may contain `*`, `?` and `[...]`."""

    field: str
    value: str
    is_negated: bool = False

    @cached_property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of the value, one of which must match."""
        return split_patterns(self.value)

    def matches(self, field_values: Iterable[str]) -> bool:
        """Return whether one of the values matches, or none of them with `!=`."""
        return any(map(self.matches_value, field_values)) is not self.is_negated

    def matches_value(self, field_value: str) -> bool:
        """Return whether a value matches a pattern, whether or not the condition is negated."""
        return any(fnmatchcase(field_value, pattern) for pattern in self.patterns)


def split_patterns(value: str) -> tuple[str, ...]:
    """Return the patterns of a value: `web-*` and `db-1` for `web-*|db-1`."""
    return tuple(_ALTERNATIVE_SEPARATOR.split(value))


def escape_name(name: str) -> str:
    """Return the pattern that matches exactly this name."""
    return re.sub(r"[*?\[|]", r"[\g<0>]", name)


def unescape_name(pattern: str) -> str:
    """Return the name that a pattern of `escape_name` matches; other patterns do not change."""
    return re.sub(r"\[([*?\[|])\]", r"\1", pattern)


def format_matchers(matchers: Iterable[Matcher]) -> str:
    """Return the text of matchers, which `parse_matchers` reads."""
    return " ".join(
        f"{matcher.field}{'!=' if matcher.is_negated else '='}{quote_value(matcher.value)}"
        for matcher in matchers
    )


def quote_value(value: str) -> str:
    """Return a value, in quotes if it contains blanks, quotes or backslashes."""
    return shlex.quote(value) if _NEEDS_QUOTES.search(value) else value


def parse_matchers(text: str, *, is_for_route: bool = False) -> tuple[Matcher, ...]:
    """Parse matchers, all of which must hold. Raises MatcherError."""
    try:
        terms = shlex.split(text)
    except ValueError as error:
        raise MatcherError(f"unbalanced quotes in: {text}") from error
    field_names = ROUTE_FIELDS if is_for_route else (*INCIDENT_FIELDS, *AGENT_FIELDS)
    matchers = tuple(_parse_term(term, field_names) for term in terms)
    are_agent_fields = {matcher.field in AGENT_FIELDS for matcher in matchers}
    if len(are_agent_fields) > 1 and not is_for_route:
        raise MatcherError(
            "match either agents (agent=, agent_set=) or incidents (cause=, kind=, rule=, severity=), not both"
        )
    return matchers


def matches_everything(matchers: Sequence[Matcher]) -> bool:
    """Return whether matchers name nothing: none at all, only wildcards, all kinds or severities, or only negations."""
    return all(matcher.is_negated or _is_wildcard(matcher) for matcher in matchers)


def _is_wildcard(matcher: Matcher) -> bool:
    enum_values = _ENUM_VALUES.get(matcher.field, ())
    matches_all = bool(enum_values) and all(map(matcher.matches_value, enum_values))
    return matches_all or any(
        not _CHARACTER_SET.sub("?", pattern.replace("[|]", "|")).strip("*?") for pattern in matcher.patterns
    )


def are_agent_matchers(matchers: Sequence[Matcher]) -> bool:
    """Return whether the matchers are about agents, not incidents."""
    return any(matcher.field in AGENT_FIELDS for matcher in matchers)


def matches_incident(matchers: Sequence[Matcher], incident: Incident) -> bool:
    """Return whether an incident fulfils every matcher."""
    return all(matcher.matches(_VALUES_OF_FIELD[matcher.field](incident)) for matcher in matchers)


def _parse_term(term: str, field_names: Sequence[str]) -> Matcher:
    field, equals, value = term.partition("=")
    is_negated = field.endswith("!")
    field = field.removesuffix("!")
    if not equals or not value:
        raise MatcherError(f"expected field=value instead of {term}")
    if field == "label":
        raise MatcherError(f"the field label is now agent_set. Use agent_set={value}")
    if field not in field_names:
        raise MatcherError(f"unknown field {field}. Use {', '.join(field_names)}")
    if not all(split_patterns(value)):
        raise MatcherError(f"a name is missing beside | in {term}")
    return Matcher(field, value, is_negated)


def match_names(names: Sequence[str], patterns: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Return the mask of names that match any of the patterns: exact, or with `*`, `?` and `[...]`."""
    mask = np.zeros(len(names), np.bool_)
    exact, globs = set(), []
    for pattern in patterns:
        if any(mark in pattern for mark in "*?["):
            globs.append(pattern)
        else:
            exact.add(pattern)
    if exact or globs:
        for index, name in enumerate(names):
            if name in exact or any(fnmatchcase(name, glob) for glob in globs):
                mask[index] = True
    return mask
