"""Strict readers of environment variables: an invalid value stops the start with an error."""

from __future__ import annotations

import os
from pathlib import Path

#: Names of the variables that were read, and of the files that may hold a secret instead.
_names_read: set[str] = set()


class SettingError(Exception):
    """An invalid setting; the message names it and says how to fix it."""


def setting_names() -> frozenset[str]:
    """Return the names of all variables that were read until now: after the settings are loaded, all settings."""
    return frozenset(_names_read)


def text(name: str, default: str = "") -> str:
    """Return the variable `name`; `default` if it is unset."""
    return _read(name, default) or ""


def switch(name: str, *, default: bool = False) -> bool:
    """Return a boolean, written as `true` or `false`. Raises SettingError."""
    raw_value = _read(name)
    if raw_value is None or raw_value == "":
        return default
    if raw_value.lower() not in {"true", "false"}:
        raise SettingError(f"{name}={raw_value!r} is invalid: use true or false")
    return raw_value.lower() == "true"


def seconds(name: str, default: float) -> float:
    """Return a positive number of seconds. Raises SettingError."""
    raw_value = _read(name)
    if raw_value is None or raw_value == "":
        return default
    try:
        number = float(raw_value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise SettingError(f"{name}={raw_value!r} is not a positive number of seconds, for example 2.5")
    return number


def integer(name: str, default: int) -> int:
    """Return an integer that is not negative. Raises SettingError."""
    raw_value = _read(name)
    if raw_value is None or raw_value == "":
        return default
    if not (raw_value.isascii() and raw_value.isdigit() and len(raw_value) < 10):
        raise SettingError(f"{name}={raw_value!r} is not a whole number from 0 to 999999999")
    return int(raw_value)


def string_list(name: str) -> list[str]:
    """Return the items of a comma-separated list, without empty ones."""
    return [entry.strip() for entry in (_read(name) or "").split(",") if entry.strip()]


def choice(name: str, default: str, choices: tuple[str, ...]) -> str:
    """Return one of the `choices` values. Raises SettingError."""
    raw_value = _read(name) or default
    if raw_value not in choices:
        raise SettingError(f"{name}={raw_value!r} is not one of: {', '.join(choices)}")
    return raw_value


def pairs(name: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs of a comma-separated list of `left=right`; a left side may occur several times."""
    name_value_pairs = []
    for entry in string_list(name):
        key, sign, right = entry.partition("=")
        if not (key.strip() and sign and right.strip()):
            raise SettingError(f"{name}: {entry!r} is not in the form name=value")
        name_value_pairs.append((key.strip(), right.strip()))
    return tuple(name_value_pairs)


def secret(name: str) -> str | None:
    """Return a secret from NAME, or from the file in NAME_FILE; None if neither is set. Raises SettingError."""
    raw_value, path = _read(name), _read(f"{name}_FILE")
    if path:
        try:
            content = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SettingError(f"{name}_FILE={path!r} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SettingError(f"{name}_FILE={path!r} cannot be read: it is not UTF-8 text") from error
        if not content:
            # An empty file is an error: there is no fallback for a file that was set explicitly.
            raise SettingError(f"{name}_FILE={path!r} is empty")
        return content
    return raw_value or None


def _read(name: str, default: str | None = None) -> str | None:
    _names_read.add(name)
    return os.environ.get(name, default)
