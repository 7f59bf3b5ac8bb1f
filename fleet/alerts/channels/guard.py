"""No connection into a private network from here, whoever makes it: for libraries that connect by themselves.

The interpreter's audit hook is told the address that is really connected to, after look-ups and redirects: a name that
points elsewhere a moment later gains nothing. A thread that does not run in the context of its caller is not seen.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from fleet.alerts.channels.public_addresses import is_public

_EVENTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})


@dataclass(slots=True)
class ConnectionGuard:
    """What was refused while it was there."""

    refused_address: str = ""


_guard: ContextVar[ConnectionGuard | None] = ContextVar("guard", default=None)


@contextmanager
def public_only() -> Iterator[ConnectionGuard]:
    """Refuse connections of this context to all that is not public, for as long as the block lasts."""
    _watch_sockets()
    guard = ConnectionGuard()
    token = _guard.set(guard)
    try:
        yield guard
    finally:
        _guard.reset(token)


@functools.cache
def _watch_sockets() -> None:
    # It cannot be taken away again, and costs others a look at a name.
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event not in _EVENTS:
        return
    guard = _guard.get()
    if guard is None or arguments[1] is None or _is_allowed(arguments[1]):
        return
    guard.refused_address = str(arguments[1])
    raise PermissionError("the target is on a private or loopback address")


def _is_allowed(address: object) -> bool:
    """Whether it is an address of the internet; names of hosts and of sockets in the file system are none."""
    if not isinstance(address, tuple) or not address:
        return False
    try:
        return is_public(str(address[0]))
    except ValueError:
        return False
