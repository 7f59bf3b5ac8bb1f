"""Export and import of alert rules as YAML. Unknown fields are refused. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any

import yaml

from fleet.alerts.rules import MAX_CLUSTER_LENGTH, Rule, RuleKind, find_rule_problems
from fleet.protocol import strict_yaml, text_limits
from fleet.vocabulary.incidents import Severity

_DEFAULT_OF_FIELD = {field.name: field.default for field in fields(Rule) if field.default is not MISSING}
#: Maximum length of a document, characters; the built-in rules take 2,000.
_MAX_DOCUMENT_LENGTH = 65_536
#: Maximum length of an error message on a page, characters.
_MAX_MESSAGE_LENGTH = 300


class RulesError(ValueError):
    """The document is not valid; the message says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__(text_limits.cut(sentence, _MAX_MESSAGE_LENGTH))


def dump(rules: Iterable[Rule]) -> str:
    """Return rules as YAML, without default values."""
    return yaml.safe_dump(
        {"rules": [_document_of(rule) for rule in rules]}, sort_keys=False, allow_unicode=True
    )


def load(text: str) -> list[Rule]:
    """Parse rules from YAML. Raises RulesError."""
    try:
        document = strict_yaml.load(text, longest=_MAX_DOCUMENT_LENGTH)
    except strict_yaml.StrictYAMLError as error:
        raise RulesError(f"the document is not valid YAML: {error}") from error
    entries = document.get("rules") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise RulesError("the document must contain a list named `rules`")
    rules = [_parse_rule(number, entry) for number, entry in enumerate(entries, 1)]
    names = [(rule.cluster, rule.name) for rule in rules]
    if len(set(names)) != len(names):
        raise RulesError("two rules have the same name")
    return rules


def _document_of(rule: Rule) -> dict[str, Any]:
    document: dict[str, Any] = {"name": rule.name, "kind": rule.kind.value, "severity": rule.severity.slug}
    for name, default in _DEFAULT_OF_FIELD.items():
        if getattr(rule, name) != default:
            document[name] = getattr(rule, name)
    return document


def _parse_rule(number: int, entry: Any) -> Rule:
    location = f"rule {number}"
    if not isinstance(entry, dict):
        raise RulesError(f"{location} is not a mapping")
    unknown_keys = sorted(map(str, set(entry) - {"name", "kind", "severity", *_DEFAULT_OF_FIELD}))
    if "label" in unknown_keys:
        raise RulesError(f"{location}: the field label is now agent_set")
    if unknown_keys:
        raise RulesError(f"{location}: unknown field {', '.join(unknown_keys)}")
    try:
        kind = RuleKind(str(entry.get("kind")))
    except ValueError as error:
        raise RulesError(
            f"{location}: kind must be one of {', '.join(kind.value for kind in RuleKind)}"
        ) from error
    try:
        severity = Severity[str(entry.get("severity")).upper()]
    except KeyError as error:
        slugs = ", ".join(severity.slug for severity in Severity)
        raise RulesError(f"{location}: severity must be one of {slugs}") from error
    options = {
        field_name: field_value
        for field_name, field_value in entry.items()
        if field_name in _DEFAULT_OF_FIELD
    }
    for field_name, field_value in options.items():
        if not _has_type_of(field_name, field_value):
            raise RulesError(f"{location}: {field_value!r} is not a valid value of {field_name}")
    rule = Rule(name=str(entry.get("name") or "").strip(), kind=kind, severity=severity, **options)
    for field_name, problem in find_rule_problems(rule).items():
        raise RulesError(f"{location}: {field_name}: {problem.rstrip('.')}")
    if len(rule.cluster) > MAX_CLUSTER_LENGTH or not rule.cluster.isprintable():
        raise RulesError(f"{location}: {rule.cluster!r} is not a valid value of cluster")
    return rule


def _has_type_of(field_name: str, field_value: object) -> bool:
    """Return whether a value has the type of a field; a whole number is also a number of seconds."""
    default = _DEFAULT_OF_FIELD[field_name]
    if isinstance(default, float):
        return isinstance(field_value, int | float) and not isinstance(field_value, bool)
    return type(field_value) is type(default)
