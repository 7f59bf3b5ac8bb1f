"""The log in words: what was done, and what is different since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: What an action is about, by its first word; others are their own words.
_THINGS = {
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
#: How what was done is said in the imperative, by the last word; others are their own words.
_DEEDS = {
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
#: States that a change moved to by itself, in an action's last word: `networking config: verified`.
_STATES = frozenset({"verifying", "verified", "failed", "cancelled", "undone", "paused", "running"})
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
        thing, _, deed = rest.partition(".")
        what = f"{_deed(deed)} {_thing(thing)}" if deed else f"submit {_thing(thing)}"
        return f"{what} ({'on its page' if first == 'page' else 'by the API'})"
    if not rest:
        return _thing(first)
    if rest in _STATES:
        return f"{_thing(first)}: {rest}"
    return f"{_deed(rest)} {_thing(first)}"


def differences(before: Any, after: Any) -> list[Difference]:
    """Return what differs between two documents of the log, by path; all of it where there is only one."""
    old, new = _flat(before), _flat(after)
    return [
        Difference(key, old.get(key, ""), new.get(key, ""))
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    ]


def _thing(word: str) -> str:
    return _THINGS.get(word, word.replace("-", " "))


def _deed(word: str) -> str:
    return _DEEDS.get(word, word.replace("-", " "))


def _flat(value: Any, path: str = "") -> dict[str, str]:
    if isinstance(value, Mapping):
        found: dict[str, str] = {}
        for key, inner in value.items():
            found |= _flat(inner, f"{path}.{key}" if path else str(key))
        return found
    return {} if value is None else {path or "value": _words(value)}


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else json.dumps(value)
