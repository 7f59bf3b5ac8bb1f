"""Values of flags of `manage.py`, refused while they are read: before anything is started."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable

from fleet.protocol import durations
from fleet.protocol.recovery import announce


def make_integer_parser(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """A whole number from `least` to `most`; None: as many as one likes."""

    def parse(text: str) -> int:
        sentence = f"at least {minimum}" if maximum is None else f"{minimum} to {maximum}"
        try:
            number = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a whole number: {sentence}") from None
        if number < minimum or (maximum is not None and number > maximum):
            raise ArgumentTypeError(f"{number} is out of range: {sentence}")
        return number

    return parse


def announce_ttl(text: str) -> str:
    """An announce TTL as it was written: the nodes read it."""
    try:
        seconds = durations.parse(text)
    except durations.DurationError as error:
        raise ArgumentTypeError(str(error)) from None
    if seconds < announce.SHORTEST_TTL:
        raise ArgumentTypeError(f"{text!r} is shorter than {durations.format_seconds(announce.SHORTEST_TTL)}")
    return text
