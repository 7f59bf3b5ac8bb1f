"""Stacks of errors that come again and again.

A loop that fails each second would write a hundred thousand stacks a day, all of them the same.
"""

from __future__ import annotations

import logging
from traceback import walk_tb

from typing_extensions import override

from fleet.processes.log_format import replace_stack

#: Seconds between two equal stacks. In between, the error is one line.
_INTERVAL_SECONDS = 600.0
#: Number of stacks to remember; then those that may be logged again are forgotten.
_MAX_STACKS = 1_000

#: Type of an error, and file and line of every frame, the one that raised it last.
_Stack = tuple[type[BaseException], tuple[tuple[str, int], ...]]


class RepeatedStackFilter(logging.Filter):
    """Replaces a stack that was logged less than ten minutes ago by the error and the place that raised it."""

    def __init__(self) -> None:
        super().__init__()
        #: When each stack was last logged, seconds since the epoch.
        self._logged_at: dict[_Stack, float] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if error is None or error.__traceback__ is None:
            return True
        stack = _stack_of(error)
        logged_at = self._logged_at.get(stack)
        if logged_at is None or not 0 <= record.created - logged_at < _INTERVAL_SECONDS:
            self._remember(stack, record.created)
            return True
        path, line = stack[1][-1]
        first_line = (str(error).splitlines() or [""])[0]
        replace_stack(record, f"{type(error).__name__}: {first_line} ({path}:{line}, stack above)")
        return True

    def _remember(self, stack: _Stack, now: float) -> None:
        if len(self._logged_at) >= _MAX_STACKS:
            self._logged_at = {
                known_stack: logged_at
                for known_stack, logged_at in self._logged_at.items()
                if 0 <= now - logged_at < _INTERVAL_SECONDS
            }
        self._logged_at[stack] = now


def _stack_of(error: BaseException) -> _Stack:
    return type(error), tuple(
        (frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)
    )
