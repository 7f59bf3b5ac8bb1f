"""Error containment: an internal error in one call ends that call and not its connection. docs/reference/gateway.md

Listeners of HTTP/2 streams run while a connection is read, and the event loop closes a connection whose reading raises.
That would end every call on it, of every program behind it. An error in a timer or task would leave its call open.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

log = logging.getLogger(__name__)

_LOG_TEXT = "internal error in %s: one call ends, and the connection continues"


class Abortable(Protocol):
    """An object that can be ended after an internal error."""

    def abort(self) -> None:
        """End only this object, whatever its state."""


_B = TypeVar("_B", bound=Abortable)
_P = ParamSpec("_P")


def contain_errors(method: Callable[Concatenate[_B, _P], None]) -> Callable[Concatenate[_B, _P], None]:
    """Wrap a method: an error in it is logged with its traceback and ends only its own object."""
    plain_method = cast("Callable[..., None]", method)

    # One for each form, as any keywords would be a dict for each event of a call.
    @wraps(plain_method)
    def run(self: Abortable, /, *args: Any) -> None:
        try:
            plain_method(self, *args)
        except Exception:
            log.exception(_LOG_TEXT, plain_method.__qualname__)
            self.abort()

    @wraps(plain_method)
    def run_event(self: Abortable, content: Any, /, *, end: bool) -> None:
        try:
            plain_method(self, content, end=end)
        except Exception:
            log.exception(_LOG_TEXT, plain_method.__qualname__)
            self.abort()

    has_end = "end" in inspect.signature(plain_method).parameters
    return cast("Callable[Concatenate[_B, _P], None]", run_event if has_end else run)
