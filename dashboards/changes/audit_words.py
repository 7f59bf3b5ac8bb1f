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
OF_THE_FLEET = frozenset({"instance", "networking-config", "policy", "reconnect", "agent"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that an act changed."""

    key: str
    #: Empty: there was none, or there is none any more.
    before: str
    after: str


def action_words(action: str) -> str:
    """Return an action in words: `retire agent`, `silence incident (on its page)`."""
    first, _, rest = action.partition(".")
    if first in ("page", "api"):
        subject, _, verb = rest.partition(".")
        phrase = f"{_verb(verb) if verb else 'submit'} {_subject(subject)}"
        return f"{phrase} ({'on its page' if first == 'page' else 'by the API'})"
    if not rest:
        return _subject(first)
    if rest in LOGGED_STATES:
        return f"{_subject(first)}: {rest}"
    return f"{_verb(rest)} {_subject(first)}"


def differences(before: Any, after: Any) -> list[Difference]:
    """Return what differs between two documents of the log, by path; all of it where there is only one."""
    old, new = _flat(before), _flat(after)
    return [
        Difference(key, old.get(key, ""), new.get(key, ""))
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    ]


def _subject(word: str) -> str:
    return _SUBJECTS.get(word, word.replace("-", " "))


def _verb(word: str) -> str:
    return _VERBS.get(word, word.replace("-", " "))


def _flat(value: Any, path: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        flat: dict[str, str] = {}
        for key, inner in value.items():
            flat |= _flat(inner, f"{path}.{key}" if path else str(key))
        return flat
    return {} if value is None else {path or "value": _words(value)}


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value)
