"""Argument types of `manage.py` commands: invalid values are rejected before anything starts."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

from fleet.protocol import durations
from fleet.protocol.recovery import announce


def make_integer_parser(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return an argument type for whole numbers from `minimum` to `maximum`; None means no upper limit."""

    def parse(text: str) -> int:
        sentence = f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}"
        try:
            number = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a whole number: use {sentence}") from None
        if number < minimum or (maximum is not None and number > maximum):
            raise ArgumentTypeError(f"{number} is out of range: use {sentence}")
        return number

    return parse


def validate_announce_ttl(text: str) -> str:
    """Validate an announce TTL and return it unchanged: the nodes parse it. Raises ArgumentTypeError."""
    try:
        seconds = durations.parse(text)
    except durations.DurationError as error:
        raise ArgumentTypeError(str(error)) from None
    if seconds < announce.SHORTEST_TTL:
        raise ArgumentTypeError(
            f"{text!r} is too short: use at least {durations.format_seconds(announce.SHORTEST_TTL)}"
        )
    return text
