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
    raw = os.environ.get(name)
    if raw is None or raw == "":
        return default
    if raw.lower() not in {"true", "false"}:
        raise SettingError(f"{name}={raw!r} is not a switch: use true or false")
    return raw.lower() == "true"


def seconds(name: str, default: float) -> float:
    """A positive number of seconds."""
    raw = os.environ.get(name)
    if raw is None or raw == "":
        return default
    try:
        number = float(raw)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise SettingError(f"{name}={raw!r} is not a positive number of seconds")
    return number


def integer(name: str, default: int) -> int:
    """A whole number, not negative."""
    raw = os.environ.get(name)
    if raw is None or raw == "":
        return default
    if not (raw.isascii() and raw.isdigit() and len(raw) < 10):
        raise SettingError(f"{name}={raw!r} is not a whole number")
    return int(raw)


def string_list(name: str) -> list[str]:
    """A comma-separated list, without empty items."""
    return [entry.strip() for entry in os.environ.get(name, "").split(",") if entry.strip()]


def choice(name: str, default: str, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    raw = os.environ.get(name) or default
    if raw not in choices:
        raise SettingError(f"{name}={raw!r} is not one of: {', '.join(choices)}")
    return raw


def pairs(name: str) -> tuple[tuple[str, str], ...]:
    """A comma-separated list of `left=right`; a left may stand more than once."""
    name_value_pairs = []
    for entry in string_list(name):
        key, sign, right = entry.partition("=")
        if not (key.strip() and sign and right.strip()):
            raise SettingError(f"{name}: {entry!r} is not of the form name=value")
        name_value_pairs.append((key.strip(), right.strip()))
    return tuple(name_value_pairs)


def secret(name: str) -> str | None:
    """A secret, from NAME or from the file that NAME_FILE names; None when neither is set."""
    path = os.environ.get(f"{name}_FILE")
    if path:
        try:
            content = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SettingError(f"{name}_FILE={path!r} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SettingError(f"{name}_FILE={path!r} cannot be read: it is no text in UTF-8") from error
        if not content:
            # Whoever names a file wants what is in it, and nothing instead of it.
            raise SettingError(f"{name}_FILE={path!r} is empty")
        return content
    return os.environ.get(name) or None
