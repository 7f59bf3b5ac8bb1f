"""Switches in environment variables, with the values that Go's ParseBool accepts, as in Teleport. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_VALUE_BY_TEXT = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


class SwitchError(ValueError):
    """A switch that is neither on nor off; the message names the variable."""


def switch_from(environment: Mapping[str, str], variable: str, *, default: bool) -> bool:
    """Return the value of a switch; the default when unset or empty. Raises SwitchError."""
    text = environment.get(variable, "")
    if not text:
        return default
    if text not in _VALUE_BY_TEXT:
        raise SwitchError(f"{variable}={text!r} is not a boolean. Use true or false")
    return _VALUE_BY_TEXT[text]
