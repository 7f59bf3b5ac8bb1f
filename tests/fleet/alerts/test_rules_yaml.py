from __future__ import annotations

import time

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


def _with(**fields: str) -> str:
    given = {"name": "a", "kind": "stranded", "severity": "info", **fields}
    return f"rules: [{{{', '.join(f'{key}: {value}' for key, value in given.items())}}}]"


@pytest.mark.parametrize(
    "text",
    [
        # A mapping that has two copies of the one before, 60 times over, and the same of lists.
        "a0: &a0 {x: 1}\n" + "\n".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60)),
        "rules:\n- &a [x]\n" + "\n".join(f"- &b{n} [*a, *a]" for n in range(60)),
        "rules: " + "[" * 50_000,
        _with(min_count="2001-99-99"),
        _with(min_count="9" * 5_000),
        _with(min_count="0x" + "f" * 5_000),
        _with(min_count="1_000_000_001"),
        _with(pending_seconds=".inf"),
        _with(pending_seconds=".nan"),
        _with(enabled="1"),
        _with(enabled="'yes'"),
        _with(label="5"),
        _with(label="x" * 65),
        _with(label='"a\\nb"'),
        _with(runbook="javascript:alert(1)"),
        _with(runbook="https://" + "x" * 200),
        _with(name="x" * 101),
        _with(name='"a\\x1bb"'),
        _with(colour="[" + "x, " * 2_000 + "]"),
        _with(**{"x" * 2_000: "1"}),
        "rules: []\nmore: " + "x" * 65_536,
    ],
)
def test_document_that_is_meant_to_do_harm(text: str) -> None:
    """It is refused at once, with a sentence that fits a page."""
    began = time.process_time()
    with pytest.raises(RulesError) as caught:
        load(text)
    assert time.process_time() - began < 3.0
    assert 0 < len(str(caught.value)) <= 300


def test_runbook_is_an_address_of_the_web() -> None:
    """Which a page may link to."""
    (rule,) = load(_with(runbook="https://wiki.example.com/proxies", enabled="false", min_share="0.5"))
    assert (rule.runbook, rule.enabled, rule.min_share) == ("https://wiki.example.com/proxies", False, 0.5)


def test_rules_of_two_owners_may_have_one_name() -> None:
    """A rule of a cluster overrides the installation's by its name."""
    text = "rules: [{name: a, kind: stranded, severity: info}, {name: a, kind: stranded, severity: info, cluster: eu}]"
    assert [rule.cluster for rule in load(text)] == ["", "eu"]
