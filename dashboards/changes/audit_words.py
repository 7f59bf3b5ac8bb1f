"""The audit log in words: actions, and the values that they changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.vocabulary.actions import LOGGED_STATES

#: The subject of an action, by its first word; other subjects keep that word.
_SUBJECTS = {
    "networking-config": "networking config",
    "policy": "policies",
    "reconnect": "reconnect campaign",
    "alert-rule": "alert rule",
    "agent-label": "agent label",
    "window": "maintenance window",
    "delivery": "notification",
    "token": "API token",
    "user": "user account",
    "cluster": "cluster settings",
    "policy-target": "policies",
}
#: The verb of an action, by its last word; other verbs keep that word.
_VERBS = {
    "make": "create",
    "again": "resend",
    "let-go": "release",
    "unretire": "reinstate",
    "seen": "notice",
    "try-closing": "retry tunnel closing in",
    "set": "change",
    "on": "enable",
    "off": "disable",
}
#: Actions after which agents or instances may fare otherwise, by the first word. All else (channels, silences,
#: tokens, what somebody sent from a page) concerns the console alone.
FLEET_ACTION_SUBJECTS = frozenset({"instance", "networking-config", "policy", "reconnect", "agent"})


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """One value that an act changed."""

    key: str
    #: Empty: there was none, or there is none any more.
    before: str
    after: str


def describe_action(action: str) -> str:
    """Return an action in words: `retire agent`, `silence incident (on its page)`."""
    first, _, rest = action.partition(".")
    if first in ("page", "api"):
        subject, _, verb = rest.partition(".")
        phrase = f"{_verb_text_of(verb) if verb else 'submit'} {_subject_text_of(subject)}"
        return f"{phrase} ({'on its page' if first == 'page' else 'by the API'})"
    if not rest:
        return _subject_text_of(first)
    if rest in LOGGED_STATES:
        return f"{_subject_text_of(first)}: {rest}"
    return f"{_verb_text_of(rest)} {_subject_text_of(first)}"


def differences(before: Any, after: Any) -> list[ValueDifference]:
    """Return what differs between two documents of the log, by path; all of it where there is only one."""
    old, new = _flatten(before), _flatten(after)
    return [
        ValueDifference(key, old.get(key, ""), new.get(key, ""))
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    ]


def _subject_text_of(noun: str) -> str:
    return _SUBJECTS.get(noun, noun.replace("-", " "))


def _verb_text_of(action_word: str) -> str:
    return _VERBS.get(action_word, action_word.replace("-", " "))


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
