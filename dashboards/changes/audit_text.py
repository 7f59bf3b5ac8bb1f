"""The audit log as people read it: names of actions, and the values that they changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.vocabulary.actions import AUDITED_STATES

#: The object of an action, by its first word; others keep that word.
_SUBJECT_TEXTS = {
    "networking-config": "config change",
    "policy": "policy change",
    "reconnect": "reconnect campaign",
    "service": "service change",
    "degrade": "degradation",
    "retire": "retirement",
    "alert-rule": "alert rule",
    "agent-set": "agent set",
    "saved-view": "saved view",
    "runbook": "custom text of the runbook",
    "window": "maintenance window",
    "delivery": "notification",
    "token": "API token",
    "user": "user account",
    "cluster": "cluster",
    "policy-target": "policies",
    "alerting": "alerting configuration",
}
#: The verb of an action, by its last word; others keep that word.
_VERB_TEXTS = {
    "retry": "resend",
    "let-go": "release",
    "external-write": "detect external",
    "reset-closing-support": "allow tunnel closing in",
    "set": "change",
}
#: Names of the forms whose action has no verb, or a verb that repeats the noun.
_FORM_ACTION_TEXTS = {
    "silences.silence": "create silence",
    "silences.window": "create maintenance window",
    "silences.end": "end silence",
    "silences.switch": "enable or disable maintenance window",
    "silence-new": "create silence",
    "silence-new.silence": "create silence",
    "silence-extend": "extend silence",
    "window-new": "create maintenance window",
    "window-new.window": "create maintenance window",
    "window": "change maintenance window",
    "window.window": "change maintenance window",
    "window-delete": "delete maintenance window",
    "incident-silence": "silence incident",
    "incident-acknowledge": "acknowledge incident",
    "incident.end-silence": "end silence",
    "incident.note": "add incident note",
    "alert-rules.label": "add agent label",
    "alert-rules.unlabel": "remove agent label",
    "runbook-text": "change custom text of a runbook",
    "alerting-import.apply": "import alerting configuration",
    "networking": "preview config change",
    "policy-target": "preview policy change",
    "reconnect": "preview reconnect campaign",
    "tokens": "create or revoke API token",
    "service": "take instance out of service or bring it back",
    "change-abort": "abort change",
    "policy-cell": "preview policy change",
    "policy-preset": "preview policy preset",
    "retire": "retire or reinstate agent",
}
#: First words of the actions that may affect agents or instances. All others (channels, silences, tokens, requests
#: from a page) concern Refloat alone.
FLEET_ACTION_SUBJECTS = frozenset(
    {"instance", "networking-config", "policy", "reconnect", "service", "agent"}
)


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """One value that an action changed."""

    key: str
    #: Empty: no value.
    before: str
    after: str


def describe_action(action: str) -> str:
    """Return an action in words: `retire agent`, `silence incident (in the console)`."""
    first, _, rest = action.partition(".")
    if first == "api":
        return f"{rest.replace('_', ' ')} (by API)"
    if first == "page":
        return f"{describe_page_action(*rest.split('.', 1))} (in the console)"
    if not rest:
        return describe_subject(first)
    if rest in AUDITED_STATES:
        return f"{describe_subject(first)}: {rest}"
    return f"{_verb_text_of(rest)} {describe_subject(first)}"


def describe_page_action(page_name: str, form_action: str = "") -> str:
    """Return what a form of a page does, in words: `confirm change`."""
    name = f"{page_name}.{form_action}" if form_action else page_name
    if name in _FORM_ACTION_TEXTS:
        return _FORM_ACTION_TEXTS[name]
    return f"{_verb_text_of(form_action) if form_action else 'submit'} {describe_subject(page_name)}"


def find_differences(before: Any, after: Any) -> list[ValueDifference]:
    """Return the differences between two documents of an entry, by path; all values where there is only one."""
    old, new = _flatten(before), _flatten(after)
    return [
        ValueDifference(key, old.get(key, ""), new.get(key, ""))
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    ]


def describe_subject(subject_word: str) -> str:
    """Return the object of an action in words: `config change`, `alert rule`."""
    return _SUBJECT_TEXTS.get(subject_word, subject_word.replace("-", " "))


def _verb_text_of(verb_word: str) -> str:
    return _VERB_TEXTS.get(verb_word, verb_word.replace("-", " "))


def _flatten(document: Any, path: str = "") -> dict[str, str]:
    if isinstance(document, Mapping):
        texts: dict[str, str] = {}
        for key, child in document.items():
            texts |= _flatten(child, f"{path}.{key}" if path else str(key))
        return texts
    return {} if document is None else {path or "value": _format_scalar(document)}


def _format_scalar(scalar: Any) -> str:
    if isinstance(scalar, bool):
        return "yes" if scalar else "no"
    return scalar if isinstance(scalar, str) else json.dumps(scalar)
