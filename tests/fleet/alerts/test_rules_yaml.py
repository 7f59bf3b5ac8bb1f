from __future__ import annotations

import time

import pytest

from fleet.alerts.rules import DEFAULT_RULES
from fleet.alerts.rules_yaml import RulesError, dump, load


def test_dumped_rules_load_unchanged() -> None:
    """Default values are left out."""
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
def test_invalid_document_raises_an_error(text: str) -> None:
    """The error is a sentence."""
    with pytest.raises(RulesError, match=" "):
        load(text)


def test_old_name_of_a_field_is_an_error_with_the_new_one() -> None:
    """Labels are what agents report."""
    with pytest.raises(RulesError, match="rule 1: the field label is now agent_set"):
        load(_document(label="critical"))


def _document(**fields: str) -> str:
    values = {"name": "a", "kind": "stranded", "severity": "info", **fields}
    return f"rules: [{{{', '.join(f'{key}: {value}' for key, value in values.items())}}}]"


@pytest.mark.parametrize(
    "text",
    [
        # Mappings and lists that double 60 times.
        "a0: &a0 {x: 1}\n" + "\n".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 60)),
        "rules:\n- &a [x]\n" + "\n".join(f"- &b{n} [*a, *a]" for n in range(60)),
        "rules: " + "[" * 50_000,
        _document(min_count="2001-99-99"),
        _document(min_count="9" * 5_000),
        _document(min_count="0x" + "f" * 5_000),
        _document(min_count="1_000_000_001"),
        _document(pending_seconds=".inf"),
        _document(pending_seconds=".nan"),
        _document(enabled="1"),
        _document(enabled="'yes'"),
        _document(agent_set="5"),
        _document(agent_set="x" * 65),
        _document(agent_set='"a\\nb"'),
        _document(runbook="javascript:alert(1)"),
        _document(runbook="https://" + "x" * 200),
        _document(name="x" * 101),
        _document(name='"a\\x1bb"'),
        _document(colour="[" + "x, " * 2_000 + "]"),
        _document(**{"x" * 2_000: "1"}),
        "rules: []\nmore: " + "x" * 65_536,
    ],
)
def test_malicious_document_is_refused_quickly(text: str) -> None:
    """With an error that fits a page."""
    started_at = time.process_time()
    with pytest.raises(RulesError) as error_info:
        load(text)
    assert time.process_time() - started_at < 3.0
    assert 0 < len(str(error_info.value)) <= 300


def test_runbook_url_is_loaded() -> None:
    """With the other optional fields."""
    (rule,) = load(_document(runbook="https://wiki.example.com/proxies", enabled="false", min_share="0.5"))
    assert (rule.runbook, rule.enabled, rule.min_share) == ("https://wiki.example.com/proxies", False, 0.5)


def test_rules_of_the_installation_and_a_cluster_may_share_a_name() -> None:
    """A rule of a cluster overrides the installation's by its name."""
    text = "rules: [{name: a, kind: stranded, severity: info}, {name: a, kind: stranded, severity: info, cluster: eu}]"
    assert [rule.cluster for rule in load(text)] == ["", "eu"]
