from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.alerts.matchers import (
    Matcher,
    MatcherError,
    are_agent_matchers,
    escape_name,
    format_matchers,
    match_names,
    matches_everything,
    matches_incident,
    parse_matchers,
    unescape_name,
)
from fleet.vocabulary.incidents import Cause, CauseKind, Incident, IncidentState, RuleMark, Severity

_INCIDENT = Incident(
    "default",
    Cause(CauseKind.PROXY, "id-1", "proxy-1"),
    1,
    IncidentState.FIRING,
    0.0,
    severity=Severity.CRITICAL,
    marks={"Agents stranded": RuleMark(0, 0, 1, Severity.CRITICAL, 1, "")},
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("cause=proxy-1", True),
        ("cause=proxy/id-1 severity=critical", True),
        ("cause=proxy-* severity!=critical", False),
        ('rule="Agents stranded"', True),
        ("kind=auth", False),
        ("kind!=auth", True),
    ],
)
def test_all_matchers_must_match(text: str, expected: bool) -> None:
    """Names, ids, globs and negation."""
    assert matches_incident(parse_matchers(text), _INCIDENT) is expected


@pytest.mark.parametrize("text", ["proxy-1", "colour=red", "cause=", "agent=web-* cause=proxy-1", "cause='x"])
def test_invalid_matchers_raise_an_error(text: str) -> None:
    """The error is a sentence."""
    with pytest.raises(MatcherError, match=" "):
        parse_matchers(text)


def test_old_name_of_a_field_is_an_error_with_the_new_one() -> None:
    """Labels are what agents report."""
    with pytest.raises(MatcherError, match=r"label is now agent_set\. Use agent_set=lab"):
        parse_matchers("label=lab")


def test_route_matchers_support_agent_sets_of_affected_agents() -> None:
    """Matchers by agent name are for silences only."""
    incident_of_sets = replace(_INCIDENT, agent_sets=("critical", "lab"))
    matchers = parse_matchers("agent_set=crit* kind=proxy", is_for_route=True)
    assert matches_incident(matchers, incident_of_sets)
    assert not matches_incident(matchers, _INCIDENT)
    with pytest.raises(MatcherError, match="unknown field agent"):
        parse_matchers("agent=web-1", is_for_route=True)


def test_matchers_of_everything_are_recognised() -> None:
    """No condition, `*` and conditions that always match."""
    assert matches_everything(parse_matchers(""))
    assert matches_everything(parse_matchers(["cause=*", "agent!=x"][0]))
    assert matches_everything(parse_matchers("severity=?*"))
    assert matches_everything(parse_matchers("cause!=proxy-1"))
    assert matches_everything(parse_matchers("severity=*i*"))
    assert matches_everything(parse_matchers("kind=* severity=?*"))
    assert not matches_everything(parse_matchers("severity=w*"))
    assert not matches_everything(parse_matchers("kind=proxy*"))
    assert not matches_everything(parse_matchers("agent=web-*"))
    assert are_agent_matchers(parse_matchers("agent_set=critical"))


@pytest.mark.parametrize(
    "text", ["severity=[a-z]*", "kind=*[!x]*", "cause=[!x]*", "agent=[!]]*", "rule=?[a]*"]
)
def test_character_sets_count_as_everything(text: str) -> None:
    """Otherwise nobody would have to confirm that everything is meant."""
    assert matches_everything(parse_matchers(text))
    assert not matches_everything(parse_matchers("agent=agent-[12]"))


def test_match_names_supports_exact_names_and_globs() -> None:
    """Matching is case-sensitive; an empty list matches nothing."""
    names = ["web-1", "web-2", "db-1", "Web-3"]
    assert match_names(names, ["db-1", "web-*"]).tolist() == [True, True, True, False]
    assert not match_names(names, []).any()


def test_alternatives_match_one_of_several_names() -> None:
    """`|` separates them; a negation excludes all of them; a set of characters is no separator."""
    assert matches_incident(parse_matchers("cause=proxy-2|proxy-1"), _INCIDENT)
    assert not matches_incident(parse_matchers("cause=proxy-2|proxy-3"), _INCIDENT)
    assert not matches_incident(parse_matchers("cause!=proxy-2|proxy-1"), _INCIDENT)
    assert parse_matchers("agent=a[|]b|c")[0].patterns == ("a[|]b", "c")
    assert matches_everything(parse_matchers("severity=critical|warning|info"))
    assert matches_everything(parse_matchers("agent=web-1|*"))
    assert not matches_everything(parse_matchers("severity=critical|warning"))
    with pytest.raises(MatcherError, match=r"a name is missing beside \|"):
        parse_matchers("agent=web-1|")


@given(st.text(min_size=1, max_size=30).filter(str.strip))
def test_name_survives_as_a_matcher(name: str) -> None:
    """Names with blanks, quotes, backslashes, wildcards and bars match themselves alone."""
    text = format_matchers([Matcher("agent", escape_name(name), is_negated=True)])
    (matcher,) = parse_matchers(text)
    assert matcher.patterns == (escape_name(name),)
    assert matcher.matches_value(name)
    assert not matcher.matches_value(f"{name}x")
    assert unescape_name(matcher.value) == name
