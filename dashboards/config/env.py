"""Strict readers of the environment: a wrong value stops the start with a sentence, never a silent default."""

from __future__ import annotations

import os
from pathlib import Path


class SettingError(Exception):
    """A setting that cannot be read; the sentence names it and says how to mend it."""


def text(name: str, default: str = "") -> str:
    """A string."""
    return os.environ.get(name, default)


def switch(name: str, *, default: bool = False) -> bool:
    """True or False, spelled `true` or `false`."""
    value = os.environ.get(name)
    if value is None or value == "":
        return default
    if value.lower() not in {"true", "false"}:
        raise SettingError(f"{name}={value!r} is not a switch: use true or false")
    return value.lower() == "true"


def seconds(name: str, default: float) -> float:
    """A positive number of seconds."""
    value = os.environ.get(name)
    if value is None or value == "":
        return default
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise SettingError(f"{name}={value!r} is not a positive number of seconds")
    return number


def integer(name: str, default: int) -> int:
    """A whole number, not negative."""
    value = os.environ.get(name)
    if value is None or value == "":
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 10):
        raise SettingError(f"{name}={value!r} is not a whole number")
    return int(value)


def items(name: str) -> list[str]:
    """A comma-separated list, without empty items."""
    return [item.strip() for item in os.environ.get(name, "").split(",") if item.strip()]


def choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    value = os.environ.get(name) or default
    if value not in allowed:
        raise SettingError(f"{name}={value!r} is not one of: {', '.join(allowed)}")
    return value


def pairs(name: str) -> tuple[tuple[str, str], ...]:
    """A comma-separated list of `left=right`; a left may stand more than once."""
    found = []
    for item in items(name):
        left, sign, right = item.partition("=")
        if not (left.strip() and sign and right.strip()):
            raise SettingError(f"{name}: {item!r} is not of the form name=value")
        found.append((left.strip(), right.strip()))
    return tuple(found)


def secret(name: str) -> str | None:
    """A secret, from NAME or from the file that NAME_FILE names; None when neither is set."""
    path = os.environ.get(f"{name}_FILE")
    if path:
        try:
            found = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SettingError(f"{name}_FILE={path!r} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SettingError(f"{name}_FILE={path!r} cannot be read: it is no text in UTF-8") from error
        if not found:
            # Whoever names a file wants what is in it, and nothing instead of it.
            raise SettingError(f"{name}_FILE={path!r} is empty")
        return found
    return os.environ.get(name) or None
