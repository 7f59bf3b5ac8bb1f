"""Switches in the environment, as Go's ParseBool reads them: Teleport's variables are written for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_SWITCH_TEXTS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


class SwitchError(ValueError):
    """A switch that is neither on nor off; the sentence names it."""


def switch_from(environment: Mapping[str, str], variable: str, *, default: bool) -> bool:
    """What a variable says; the default when unset or empty. Raises SwitchError."""
    text = environment.get(variable, "")
    if not text:
        return default
    if text not in _SWITCH_TEXTS:
        raise SwitchError(f"{variable}={text!r} is not a switch: use true or false")
    return _SWITCH_TEXTS[text]
