"""Matchers as conditions of a form: *Agent is web-1*, *Severity is not critical*. docs/reference/alerts.md, "Silences".

A condition has one name or pattern. Conditions with *is* on the same field are alternatives (`agent=web-1|web-2`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleet.alerts.cause_labels import describe_cause_key
from fleet.alerts.matchers import Matcher, MatcherError, format_matchers, parse_matchers, unescape_name

#: Fields with their labels, in the order of the form.
FIELD_LABELS: Mapping[str, str] = {
    "agent": "Agent",
    "agent_set": "Agent set",
    "cause": "Instance or cause",
    "kind": "Kind of cause",
    "severity": "Severity",
    "rule": "Alert rule",
}
OPERATOR_CHOICES = (("is", "is"), ("is-not", "is not"))


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition as the form shows it."""

    #: The matcher, as a value of the form.
    text: str
    label: str
    verb: str
    value_label: str


def split_conditions(matchers: Sequence[Matcher]) -> tuple[Matcher, ...] | None:
    """Return matchers with one pattern each; None if alternatives would not mean the same."""
    positive_fields = [matcher.field for matcher in matchers if not matcher.is_negated]
    if len(positive_fields) != len(set(positive_fields)):
        return None  # `agent=web-* agent=*-eu` means both, not one of them
    return tuple(replace(matcher, value=pattern) for matcher in matchers for pattern in matcher.patterns)


def join_conditions(conditions: Iterable[Matcher]) -> tuple[Matcher, ...]:
    """Return matchers from conditions: those with the same field and operator become alternatives."""
    patterns_by_key: dict[tuple[str, bool], dict[str, None]] = {}
    for condition in conditions:
        patterns = patterns_by_key.setdefault((condition.field, condition.is_negated), {})
        patterns |= dict.fromkeys(condition.patterns)
    return tuple(
        Matcher(field, "|".join(patterns), is_negated)
        for (field, is_negated), patterns in patterns_by_key.items()
    )


def parse_condition(field: str, operator: str, value: str) -> Matcher:
    """Return the condition that a form was filled in with. Raises MatcherError."""
    if field not in FIELD_LABELS:
        raise MatcherError(f"unknown field {field}. Use {', '.join(FIELD_LABELS)}")
    if not value.strip():
        raise MatcherError("enter a name or a pattern")
    condition = Matcher(field, value.strip(), operator == "is-not")
    parse_matchers(format_matchers([condition]))
    return condition


def present_conditions(conditions: Iterable[Matcher], cause_names: Mapping[str, str]) -> list[Condition]:
    """Return conditions with the names of causes. `cause_names`: result of `read_cause_names`."""
    return [
        Condition(
            text=format_matchers([condition]),
            label=FIELD_LABELS[condition.field],
            verb="is not" if condition.is_negated else "is",
            value_label=_value_label_of(condition, cause_names),
        )
        for condition in conditions
    ]


def describe_matchers(matchers: Sequence[Matcher], cause_names: Mapping[str, str]) -> list[str]:
    """Return matchers in words, a text for each: `agent web-1 or web-2`, `severity not critical`."""
    texts = []
    for matcher in matchers:
        values = [
            _value_label_of(replace(matcher, value=pattern), cause_names) for pattern in matcher.patterns
        ]
        negation = "not " if matcher.is_negated else ""
        label = (
            ""
            if matcher.field == "cause" and not matcher.is_negated
            else f"{FIELD_LABELS[matcher.field].lower()} "
        )
        texts.append(f"{label}{negation}{' or '.join(values)}")
    return texts


def _value_label_of(condition: Matcher, cause_names: Mapping[str, str]) -> str:
    name = unescape_name(condition.value)
    if condition.field == "cause" and name in cause_names:
        return describe_cause_key(name, cause_names[name])
    return name
