"""Declared status of this instance: degraded, draining. Health and the diag port report it. For one event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from fleet.protocol.destination.instance_status import InstanceStatus

log = logging.getLogger(__name__)

#: Reason when none was given.
_DEFAULT_REASON = "no reason given"


@dataclass(frozen=True, slots=True)
class Declaration:
    """A declaration. Times are seconds since the epoch; `expires_at` None: until it is withdrawn."""

    reason: str
    declared_at: float
    expires_at: float | None = None


class DeclaredStatus:
    """The declarations of this instance. A restart clears both."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self._expiry_timer: asyncio.TimerHandle | None = None
        self.degraded_declaration: Declaration | None = None
        self.draining_declaration: Declaration | None = None

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    @property
    def status(self) -> InstanceStatus:
        """The current declarations."""
        return InstanceStatus(
            None if self.degraded_declaration is None else self.degraded_declaration.reason,
            None if self.draining_declaration is None else self.draining_declaration.reason,
        )

    def drain(self, reason: str) -> None:
        """Drain the instance; if it drains already, its start stays and a new reason replaces the old one."""
        before = self.draining_declaration
        if before is not None and reason in {"", before.reason}:
            return
        self.draining_declaration = Declaration(
            reason or _DEFAULT_REASON, self._clock() if before is None else before.declared_at
        )
        log.warning(
            "declared-status.draining: this instance takes no new connections: %s",
            self.draining_declaration.reason,
        )
        self._notify()

    def undrain(self) -> None:
        """Undrain the instance."""
        if self.draining_declaration is not None:
            self.draining_declaration = None
            log.warning("declared-status.undrained: this instance takes new connections again")
            self._notify()

    def degrade(self, reason: str, duration: float | None = None) -> None:
        """Mark the instance as degraded for `duration` seconds (None: until cleared); a repeat starts the time anew."""
        before = self.degraded_declaration
        reason = reason or (_DEFAULT_REASON if before is None else before.reason)
        if before is None:
            log.warning("declared-status.degraded: this instance is degraded: %s", reason)
        now = self._clock()
        since = now if before is None else before.declared_at
        self.degraded_declaration = Declaration(reason, since, None if duration is None else now + duration)
        self._cancel_expiry_timer()
        if duration is not None:
            self._expiry_timer = asyncio.get_running_loop().call_later(duration, self.restore)
        self._notify()

    def restore(self) -> None:
        """Clear the degraded mark of the instance."""
        self._cancel_expiry_timer()
        if self.degraded_declaration is not None:
            self.degraded_declaration = None
            log.warning("declared-status.restored: this instance is no longer degraded")
            self._notify()

    def _cancel_expiry_timer(self) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
