"""Export and import of alert rules as YAML. Unknown fields are refused. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any

import yaml

from fleet.alerts.rules import Rule, RuleKind
from fleet.protocol import strict_yaml, text_limits
from fleet.vocabulary.incidents import Severity

_DEFAULT_OF_FIELD = {field.name: field.default for field in fields(Rule) if field.default is not MISSING}
_NUMBER_FIELDS = {
    name
    for name, default in _DEFAULT_OF_FIELD.items()
    if isinstance(default, int | float) and not isinstance(default, bool)
}
#: Maximum length of a document, characters; the built-in rules take 2,000.
_MAX_DOCUMENT_LENGTH = 65_536
#: Largest number of agents, polls or seconds (30 years); fits every database.
_MAX_NUMBER = 1_000_000_000
#: Maximum length of texts, characters, as in the database.
_MAX_LENGTH_OF_FIELD = {"runbook": 200}
_DEFAULT_MAX_LENGTH = 64
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
    name = str(entry.get("name") or "").strip()
    if not 0 < len(name) <= 100 or not name.isprintable():
        raise RulesError(f"{location}: a name of 1 to 100 printable characters is required")
    options = {
        field_name: field_value
        for field_name, field_value in entry.items()
        if field_name in _DEFAULT_OF_FIELD
    }
    for field_name, field_value in options.items():
        if not (
            _is_valid_number(field_name, field_value)
            if field_name in _NUMBER_FIELDS
            else _is_valid_text(field_name, field_value)
        ):
            raise RulesError(f"{location}: {field_value!r} is not a valid value of {field_name}")
    return Rule(name=name, kind=kind, severity=severity, **options)


def _is_valid_number(field_name: str, field_value: object) -> bool:
    """Return whether a value is a valid number for a field."""
    if isinstance(field_value, bool) or not isinstance(field_value, int | float):
        return False
    has_right_type = isinstance(field_value, int) or isinstance(_DEFAULT_OF_FIELD[field_name], float)
    return has_right_type and 0 <= field_value <= (1 if field_name == "min_share" else _MAX_NUMBER)


def _is_valid_text(field_name: str, field_value: object) -> bool:
    """Return whether a value is a valid text or boolean for a field."""
    if not isinstance(field_value, str):
        return isinstance(field_value, type(_DEFAULT_OF_FIELD[field_name]))
    # Pages link to the runbook, so only http(s) URLs are accepted, never `javascript:`.
    is_safe_link = (
        field_name != "runbook" or field_value == "" or field_value.startswith(("https://", "http://"))
    )
    fits_limits = (
        len(field_value) <= _MAX_LENGTH_OF_FIELD.get(field_name, _DEFAULT_MAX_LENGTH)
        and field_value.isprintable()
    )
    return isinstance(_DEFAULT_OF_FIELD[field_name], str) and is_safe_link and fits_limits
