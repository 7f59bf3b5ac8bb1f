"""Rules as people exchange them: YAML, every number by its name, unknown names refused. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any

import yaml

from fleet.alerts.rules import Rule, RuleKind
from fleet.alerts.values import Severity

_DEFAULTS = {field.name: field.default for field in fields(Rule) if field.default is not MISSING}
_NUMBERS = {
    name
    for name, value in _DEFAULTS.items()
    if isinstance(value, int | float) and not isinstance(value, bool)
}


class RulesError(ValueError):
    """The document cannot be read; the sentence says where."""


def dump(rules: Iterable[Rule]) -> str:
    """Write rules; what is as usual is left out."""
    return yaml.safe_dump({"rules": [_plain(rule) for rule in rules]}, sort_keys=False, allow_unicode=True)


def load(text: str) -> list[Rule]:
    """Read rules. Raises RulesError."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RulesError(f"this is no YAML: {error}") from error
    listed = document.get("rules") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise RulesError("the document has to be a list under the name `rules`")
    found = [_rule(number, one) for number, one in enumerate(listed, 1)]
    names = [rule.name for rule in found]
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
    if not 0 < len(name) <= 100:
        raise RulesError(f"{where}: it needs a name of 100 characters at most")
    rest = {key: value for key, value in given.items() if key in _DEFAULTS}
    for key, value in rest.items():
        usual = _DEFAULTS[key]
        fits = (
            isinstance(value, int | float) and not isinstance(value, bool)
            if key in _NUMBERS
            else isinstance(value, type(usual))
        )
        whole = key not in _NUMBERS or isinstance(usual, float) or isinstance(value, int)
        if not fits or not whole or (key in _NUMBERS and value < 0) or (key == "min_share" and value > 1):
            raise RulesError(f"{where}: {key} cannot be {value!r}")
    return Rule(name=name, kind=kind, severity=severity, **rest)
