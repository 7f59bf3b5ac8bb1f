from __future__ import annotations

import pytest

from dashboards.alerts.silences.conditions import (
    describe_matchers,
    join_conditions,
    parse_condition,
    present_conditions,
    split_conditions,
)
from fleet.alerts.matchers import Matcher, MatcherError, format_matchers, parse_matchers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("agent=web-1|db-* agent_set=lab", ["agent=web-1", "agent=db-*", "agent_set=lab"]),
        ("cause!=a cause!=b", ["cause!=a", "cause!=b"]),
        ("severity=critical severity!=info", ["severity=critical", "severity!=info"]),
    ],
)
def test_matchers_are_split_and_joined(text: str, expected: list[str]) -> None:
    """One name each, and back to matchers with the same meaning."""
    conditions = split_conditions(parse_matchers(text))
    assert conditions is not None
    assert [format_matchers([condition]) for condition in conditions] == expected
    joined_matchers = join_conditions(conditions)
    assert split_conditions(joined_matchers) == conditions


def test_matchers_that_must_all_match_are_no_alternatives() -> None:
    """Two patterns for one name cannot be condition_rows as conditions: these would mean one of them."""
    assert split_conditions(parse_matchers("agent=web-* agent=*-eu")) is None


def test_condition_of_a_form_is_a_matcher() -> None:
    """With blanks and quotes in the name; without a name or with an unknown field, an error."""
    condition = parse_condition("rule", "is-not", ' Bo\'s "rule" ')
    assert condition == Matcher("rule", 'Bo\'s "rule"', is_negated=True)
    assert parse_matchers(format_matchers([condition])) == (condition,)
    for field, value in (("colour", "red"), ("agent", " "), ("agent", "a|")):
        with pytest.raises(MatcherError):
            parse_condition(field, "is", value)


def test_conditions_show_the_names_of_causes() -> None:
    """The value of the form keeps the key."""
    names = {"auth/90569a4c": "auth-1", "proxy/2": "web"}
    matchers = parse_matchers("cause=auth/90569a4c|proxy/2 severity!=info")
    conditions = split_conditions(matchers)
    assert conditions is not None
    condition_rows = present_conditions(conditions, names)
    assert [(condition.label, condition.verb, condition.value_label) for condition in condition_rows] == [
        ("Instance or cause", "is", "auth-1"),
        ("Instance or cause", "is", "proxy web"),
        ("Severity", "is not", "info"),
    ]
    assert condition_rows[0].text == "cause=auth/90569a4c"
    assert describe_matchers(matchers, names) == ["auth-1 or proxy web", "severity not info"]
    assert describe_matchers(parse_matchers("agent=a[*]|b agent_set=lab"), {}) == [
        "agent a* or b",
        "agent set lab",
    ]
