from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.alerts.matchers import MatchError, is_everything, is_of_agents, matches, parse
from fleet.vocabulary.incidents import Cause, CauseKind, Incident, IncidentState, Mark, Severity

_INCIDENT = Incident(
    "default",
    Cause(CauseKind.PROXY, "id-1", "proxy-1"),
    1,
    IncidentState.FIRING,
    0.0,
    severity=Severity.CRITICAL,
    marks={"Agents stranded": Mark(0, 0, 1, Severity.CRITICAL, 1, "")},
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
def test_matchers_must_all_hold(text: str, expected: bool) -> None:
    """Names, ids, globs and negation."""
    assert matches(parse(text), _INCIDENT) is expected


@pytest.mark.parametrize("text", ["proxy-1", "colour=red", "cause=", "agent=web-* cause=proxy-1", "cause='x"])
def test_parse_refuses_with_a_sentence(text: str) -> None:
    """What cannot be meant is not guessed."""
    with pytest.raises(MatchError, match=" "):
        parse(text)


def test_routes_look_at_labels_of_harmed_agents() -> None:
    """Beside anything else of the incident; agents by name are for silences."""
    labelled = replace(_INCIDENT, labels=("critical", "lab"))
    both = parse("label=crit* kind=proxy", of_routes=True)
    assert matches(both, labelled)
    assert not matches(both, _INCIDENT)
    with pytest.raises(MatchError, match="no field agent here"):
        parse("agent=web-1", of_routes=True)


def test_everything_is_recognised() -> None:
    """No condition and `*` alike."""
    assert is_everything(parse(""))
    assert is_everything(parse(["cause=*", "agent!=x"][0]))
    assert is_everything(parse("severity=?*"))
    assert is_everything(parse("cause!=proxy-1"))
    assert is_everything(parse("severity=*i*"))
    assert is_everything(parse("kind=* severity=?*"))
    assert not is_everything(parse("severity=w*"))
    assert not is_everything(parse("kind=proxy*"))
    assert not is_everything(parse("agent=web-*"))
    assert is_of_agents(parse("label=critical"))


@pytest.mark.parametrize(
    "text", ["severity=[a-z]*", "kind=*[!x]*", "cause=[!x]*", "agent=[!]]*", "rule=?[a]*"]
)
def test_sets_of_characters_name_nothing(text: str) -> None:
    """Nobody would be asked whether everything is meant."""
    assert is_everything(parse(text))
    assert not is_everything(parse("agent=agent-[12]"))
