"""Refuse connections to private addresses, also those of libraries that connect by themselves.

An audit hook of the interpreter sees the address of each connection, after DNS lookups and redirects, so a name that
resolves differently a moment later does not help. It does not see threads that run outside the context of the caller.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from fleet.alerts.channels.public_addresses import is_public

_CONNECT_EVENTS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})


@dataclass(slots=True)
class ConnectionGuard:
    """The last address that was refused; empty if none."""

    refused_address: str = ""


_guard: ContextVar[ConnectionGuard | None] = ContextVar("guard", default=None)


@contextmanager
def refuse_private_addresses() -> Iterator[ConnectionGuard]:
    """Refuse connections of this context to addresses that are not public, within the block."""
    _install_audit_hook()
    guard = ConnectionGuard()
    token = _guard.set(guard)
    try:
        yield guard
    finally:
        _guard.reset(token)


@functools.cache
def _install_audit_hook() -> None:
    # An audit hook cannot be removed. For other code it costs one comparison per event.
    sys.addaudithook(_check_socket_event)


def _check_socket_event(event: str, arguments: tuple[object, ...]) -> None:
    if event not in _CONNECT_EVENTS:
        return
    guard = _guard.get()
    if guard is None or arguments[1] is None or _is_public_socket_address(arguments[1]):
        return
    guard.refused_address = str(arguments[1])
    raise PermissionError("the address is private or loopback")


def _is_public_socket_address(address: object) -> bool:
    """Return whether an address is public. Host names and Unix sockets are not."""
    if not isinstance(address, tuple) or not address:
        return False
    try:
        return is_public(str(address[0]))
    except ValueError:
        return False
