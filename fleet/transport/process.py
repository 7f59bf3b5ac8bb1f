"""Process state, derived from the heartbeats of its components; health, diag port and metrics report it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fleet.protocol.recovery import announce
from fleet.protocol.recovery.announce import Component, ComponentState

log = logging.getLogger(__name__)


class ProcessHealth:
    """The components of one process and the resulting state."""

    def __init__(self, tick: float) -> None:
        self._tick = tick
        self._components: dict[str, Component] = {}
        self._listeners: list[Callable[[ComponentState], None]] = []
        self._is_shutting_down = False
        self.state = ComponentState.STARTING

    def add_listener(self, listener: Callable[[ComponentState], None]) -> None:
        """Call `listener` now and after every change."""
        self._listeners.append(listener)
        listener(self.state)

    def register(self, component: str) -> None:
        """Add a component that has not sent a heartbeat yet."""
        self._components[component] = Component()
        self._update_state()

    def record_success(self, component: str, now: float) -> None:
        """Record a successful heartbeat of a component; `now` in seconds of a monotonic clock."""
        before = self._components.get(component, Component())
        self._components[component] = announce.after_success(before, now, self._tick)
        self._update_state()

    def record_failure(self, component: str) -> None:
        """Record a failed heartbeat of a component."""
        self._components[component] = announce.after_failure(self._components.get(component, Component()))
        self._update_state()

    def leave(self) -> None:
        """Report degraded because the process is shutting down, whatever its heartbeats."""
        self._is_shutting_down = True
        self._update_state()

    def _update_state(self) -> None:
        state = (
            ComponentState.DEGRADED
            if self._is_shutting_down
            else announce.process_state(self._components.values())
        )
        if state is self.state:
            return
        if not self._is_shutting_down:
            level = logging.WARNING if state is ComponentState.DEGRADED else logging.INFO
            log.log(level, "process.state: %s -> %s", self.state.name.lower(), state.name.lower())
        self.state = state
        for listener in self._listeners:
            listener(state)
