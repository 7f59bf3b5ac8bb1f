"""An error of ours in one call ends that call, never the connection that it came by. docs/gateway.md

Listeners of HTTP/2 streams are called while a connection reads, and the event loop closes a connection whose reading
raises: every call on it would end, of every program behind it. Timers and tasks that raise leave their call open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

log = logging.getLogger(__name__)


class Abortable(Protocol):
    """What may meet an error of ours."""

    def abort(self) -> None:
        """End only this, in whatever state it is."""


_B = TypeVar("_B", bound=Abortable)
_P = ParamSpec("_P")


def contain_errors(method: Callable[Concatenate[_B, _P], None]) -> Callable[Concatenate[_B, _P], None]:
    """Wrap a method so that an error in it is logged with its traceback and ends its own object alone."""

    @wraps(method)
    def run(self: _B, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception:
            log.exception("an error in %s ends one call; the connection goes on", method.__qualname__)
            self.abort()

    return run
