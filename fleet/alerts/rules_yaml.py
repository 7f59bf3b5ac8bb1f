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
    for name, value in _DEFAULTS.items()
    if isinstance(value, int | float) and not isinstance(value, bool)
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
    return yaml.safe_dump({"rules": [_plain(rule) for rule in rules]}, sort_keys=False, allow_unicode=True)


def load(text: str) -> list[Rule]:
    """Read rules. Raises RulesError."""
    try:
        document = strict_yaml.load(text, longest=_LONGEST)
    except strict_yaml.StrictYAMLError as error:
        raise RulesError(f"this is no YAML of rules: {error}") from error
    listed = document.get("rules") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise RulesError("the document has to be a list under the name `rules`")
    found = [_rule(number, one) for number, one in enumerate(listed, 1)]
    names = [(rule.cluster, rule.name) for rule in found]
    if len(set(names)) != len(names):
        raise RulesError("two rules have the same name")
    return found


def _plain(rule: Rule) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": rule.name, "kind": rule.kind.value, "severity": rule.severity.slug}
    for name, usual in _DEFAULTS.items():
        if getattr(rule, name) != usual:
            plain[name] = getattr(rule, name)
    return plain


def _rule(number: int, given: Any) -> Rule:
    where = f"rule {number}"
    if not isinstance(given, dict):
        raise RulesError(f"{where} is not a mapping")
    unknown = sorted(map(str, set(given) - {"name", "kind", "severity", *_DEFAULTS}))
    if unknown:
        raise RulesError(f"{where}: there is no {', '.join(unknown)}")
    try:
        kind = RuleKind(str(given.get("kind")))
        severity = Severity[str(given.get("severity")).upper()]
    except (ValueError, KeyError) as error:
        raise RulesError(f"{where}: kind or severity is not one there is: {error}") from error
    name = str(given.get("name") or "").strip()
    if not 0 < len(name) <= 100 or not name.isprintable():
        raise RulesError(f"{where}: it needs a name of 100 characters at most")
    rest = {key: value for key, value in given.items() if key in _DEFAULTS}
    for key, value in rest.items():
        if not (_is_number(key, value) if key in _NUMBERS else _is_word(key, value)):
            raise RulesError(f"{where}: {key} cannot be {value!r}")
    return Rule(name=name, kind=kind, severity=severity, **rest)


def _is_number(key: str, value: object) -> bool:
    """Whether a value is a number that a field takes."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    whole = isinstance(value, int) or isinstance(_DEFAULTS[key], float)
    return whole and 0 <= value <= (1 if key == "min_share" else _LARGEST)


def _is_word(key: str, value: object) -> bool:
    """Whether a value is a text or a switch that a field takes."""
    if not isinstance(value, str):
        return isinstance(value, type(_DEFAULTS[key]))
    # A page links to it: an address that runs something is none.
    linked = key != "runbook" or value == "" or value.startswith(("https://", "http://"))
    fits = len(value) <= _LONGEST_TEXT.get(key, _LONGEST_WORD) and value.isprintable()
    return isinstance(_DEFAULTS[key], str) and linked and fits
