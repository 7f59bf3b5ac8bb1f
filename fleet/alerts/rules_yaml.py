"""Rules as people exchange them: YAML, every number by its name, unknown names refused. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any

import yaml

from fleet.alerts.rules import Rule, RuleKind
from fleet.protocol import strict_yaml, text_limits
from fleet.vocabulary.incidents import Severity

_DEFAULTS = {field.name: field.default for field in fields(Rule) if field.default is not MISSING}
_NUMBERS = {
    name
    for name, default in _DEFAULTS.items()
    if isinstance(default, int | float) and not isinstance(default, bool)
}
#: Characters of a document; the rules we begin with have 2,000.
_LONGEST = 65_536
#: Of agents, rounds and seconds: thirty years, and it fits every database.
_LARGEST = 1_000_000_000
#: Characters of a text, as the database keeps it.
_LONGEST_TEXT = {"runbook": 200}
_LONGEST_WORD = 64
#: Characters of a sentence: a page shows it.
_LONGEST_SENTENCE = 300


class RulesError(ValueError):
    """The document cannot be read; the sentence says where."""

    def __init__(self, sentence: str) -> None:
        super().__init__(text_limits.cut(sentence, _LONGEST_SENTENCE))


def dump(rules: Iterable[Rule]) -> str:
    """Write rules; what is as usual is left out."""
    return yaml.safe_dump({"rules": [_document_of(rule) for rule in rules]}, sort_keys=False, allow_unicode=True)


def load(text: str) -> list[Rule]:
    """Read rules. Raises RulesError."""
    try:
        document = strict_yaml.load(text, longest=_LONGEST)
    except strict_yaml.StrictYAMLError as error:
        raise RulesError(f"this is no YAML of rules: {error}") from error
    entries = document.get("rules") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise RulesError("the document has to be a list under the name `rules`")
    rules = [_parse_rule(number, entry) for number, entry in enumerate(entries, 1)]
    names = [(rule.cluster, rule.name) for rule in rules]
    if len(set(names)) != len(names):
        raise RulesError("two rules have the same name")
    return rules


def _document_of(rule: Rule) -> dict[str, Any]:
    document: dict[str, Any] = {"name": rule.name, "kind": rule.kind.value, "severity": rule.severity.slug}
    for name, default in _DEFAULTS.items():
        if getattr(rule, name) != default:
            document[name] = getattr(rule, name)
    return document


def _parse_rule(number: int, entry: Any) -> Rule:
    location = f"rule {number}"
    if not isinstance(entry, dict):
        raise RulesError(f"{location} is not a mapping")
    unknown_keys = sorted(map(str, set(entry) - {"name", "kind", "severity", *_DEFAULTS}))
    if unknown_keys:
        raise RulesError(f"{location}: there is no {', '.join(unknown_keys)}")
    try:
        kind = RuleKind(str(entry.get("kind")))
        severity = Severity[str(entry.get("severity")).upper()]
    except (ValueError, KeyError) as error:
        raise RulesError(f"{location}: kind or severity is not one there is: {error}") from error
    name = str(entry.get("name") or "").strip()
    if not 0 < len(name) <= 100 or not name.isprintable():
        raise RulesError(f"{location}: it needs a name of 100 characters at most")
    options = {key: field_value for key, field_value in entry.items() if key in _DEFAULTS}
    for key, field_value in options.items():
        if not (_is_valid_number(key, field_value) if key in _NUMBERS else _is_valid_text(key, field_value)):
            raise RulesError(f"{location}: {key} cannot be {field_value!r}")
    return Rule(name=name, kind=kind, severity=severity, **options)


def _is_valid_number(key: str, field_value: object) -> bool:
    """Whether a value is a number that a field takes."""
    if isinstance(field_value, bool) or not isinstance(field_value, int | float):
        return False
    has_right_type = isinstance(field_value, int) or isinstance(_DEFAULTS[key], float)
    return has_right_type and 0 <= field_value <= (1 if key == "min_share" else _LARGEST)


def _is_valid_text(key: str, field_value: object) -> bool:
    """Whether a value is a text or a switch that a field takes."""
    if not isinstance(field_value, str):
        return isinstance(field_value, type(_DEFAULTS[key]))
    # A page links to it: an address that runs something is none.
    is_safe_link = key != "runbook" or field_value == "" or field_value.startswith(("https://", "http://"))
    fits_limits = len(field_value) <= _LONGEST_TEXT.get(key, _LONGEST_WORD) and field_value.isprintable()
    return isinstance(_DEFAULTS[key], str) and is_safe_link and fits_limits
