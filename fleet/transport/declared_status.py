"""What this process says of itself beside being well; health and the diag port follow it. Of one event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from fleet.protocol.destination.instance_status import InstanceStatus

log = logging.getLogger(__name__)

#: Shown where nobody gave a reason.
_DEFAULT_REASON = "an operator said so"


@dataclass(frozen=True, slots=True)
class Declaration:
    """Something said. Seconds since the epoch; `until` None is until it is taken back."""

    reason: str
    at: float
    until: float | None = None


class DeclaredStatus:
    """Degraded and draining, each said or not. A restart forgets both."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self._expiry: asyncio.TimerHandle | None = None
        self.degraded_declaration: Declaration | None = None
        self.drain_declaration: Declaration | None = None

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` on every change."""
        self._listeners.append(listener)

    @property
    def status(self) -> InstanceStatus:
        """What is to be told now."""
        return InstanceStatus(
            None if self.degraded_declaration is None else self.degraded_declaration.reason,
            None if self.drain_declaration is None else self.drain_declaration.reason,
        )

    def drain(self, reason: str) -> None:
        """Say that nobody new is to come; said again it is since then, for the last reason that was given."""
        before = self.drain_declaration
        if before is not None and reason in {"", before.reason}:
            return
        self.drain_declaration = Declaration(reason or _DEFAULT_REASON, self._clock() if before is None else before.at)
        log.warning("standing.draining: %s", self.drain_declaration.reason)
        self._notify()

    def undrain(self) -> None:
        """Take that back."""
        if self.drain_declaration is not None:
            self.drain_declaration = None
            log.warning("standing.undrained: takes connections again")
            self._notify()

    def degrade(self, reason: str, duration: float | None = None) -> None:
        """Say that others are to be preferred, for so many seconds; said again it lasts from now on."""
        before = self.degraded_declaration
        reason = reason or (_DEFAULT_REASON if before is None else before.reason)
        if before is None:
            log.warning("standing.degraded: %s", reason)
        now = self._clock()
        since = now if before is None else before.at
        self.degraded_declaration = Declaration(reason, since, None if duration is None else now + duration)
        self._forget_expiry()
        if duration is not None:
            self._expiry = asyncio.get_running_loop().call_later(duration, self.restore)
        self._notify()

    def restore(self) -> None:
        """Take that back."""
        self._forget_expiry()
        if self.degraded_declaration is not None:
            self.degraded_declaration = None
            log.warning("standing.restored: is degraded no more")
            self._notify()

    def _forget_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()
