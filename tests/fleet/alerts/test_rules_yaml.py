from __future__ import annotations

import pytest

from fleet.alerts.rules import DEFAULT_RULES
from fleet.alerts.rules_yaml import RulesError, dump, load


def test_rules_come_back_as_they_were_written() -> None:
    """All of them, and what is as usual is left out."""
    text = dump(DEFAULT_RULES)
    assert tuple(load(text)) == DEFAULT_RULES
    assert "group_interval" not in text


@pytest.mark.parametrize(
    "text",
    [
        "- x", "rules: 5", "rules: [5]", "rules: [{name: a, kind: nonsense, severity: critical}]", "{",
        "rules: [{name: a, kind: stranded, severity: loud}]", "rules: [{kind: stranded, severity: info}]",
        "rules: [{name: a, kind: stranded, severity: info, colour: red}]",
        "rules: [{name: a, kind: stranded, severity: info, min_count: many}]",
        "rules: [{name: a, kind: stranded, severity: info, min_count: -1}]",
        "rules: [{name: a, kind: stranded, severity: info, min_count: 2.5}]",
        "rules: [{name: a, kind: stranded, severity: info, min_share: 5}]",
        "rules: [{name: a, kind: stranded, severity: info}, {name: a, kind: stranded, severity: info}]",
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_a_sentence(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(RulesError, match=" "):
        load(text)
