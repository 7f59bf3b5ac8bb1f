"""Error containment: an internal error in one call ends that call and not its connection. docs/reference/gateway.md

Listeners of HTTP/2 streams run while a connection is read, and the event loop closes a connection whose reading raises.
That would end every call on it, of every program behind it. An error in a timer or task would leave its call open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

log = logging.getLogger(__name__)


class Abortable(Protocol):
    """An object that can be ended after an internal error."""

    def abort(self) -> None:
        """End only this object, whatever its state."""


_B = TypeVar("_B", bound=Abortable)
_P = ParamSpec("_P")


def contain_errors(method: Callable[Concatenate[_B, _P], None]) -> Callable[Concatenate[_B, _P], None]:
    """Wrap a method: an error in it is logged with its traceback and ends only its own object."""

    @wraps(method)
    def run(self: _B, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception:
            log.exception(
                "internal error in %s: one call ends, and the connection continues", method.__qualname__
            )
            self.abort()

    return run
