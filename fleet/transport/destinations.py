"""The destinations of a process: probed individually, judged by probes and proxied requests, and picked from.

The I/O around fleet/protocol/destination, for one event loop. docs/reference/destination-health.md
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fleet.processes import background
from fleet.protocol.destination import picker as picker_rules
from fleet.protocol.destination import probe_schedule
from fleet.protocol.destination.health import (
    RECOMMENDED_SETTINGS,
    Destination,
    DestinationVerdict,
    Health,
    HealthSettings,
    ProbeOutcome,
    RequestOutcome,
)
from fleet.protocol.destination.instance_status import InstanceStatus
from fleet.protocol.destination.picker import Candidate, Pick, Picker

log = logging.getLogger(__name__)

#: Seconds between two checks for changes that only time makes: expiries and slow starts.
_REFRESH_INTERVAL = 0.5
#: Number of unanswered probes for which a destination's last declared status still holds.
_STATUS_LIFETIME_PROBES = 3


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of a probe, with an error message unless it succeeded."""

    outcome: ProbeOutcome
    error: str = ""
    #: Declared status; None: no response, so the last one still holds.
    status: InstanceStatus | None = None


@dataclass(frozen=True, slots=True)
class VerdictChange:
    """A change of a destination's verdict; `error` is that of the last probe."""

    name: str
    before: DestinationVerdict
    after: DestinationVerdict
    error: str


@dataclass(slots=True, eq=False)
class MonitoredDestination:
    """State of one destination. Times are seconds since the epoch."""

    name: str
    state_machine: Destination
    verdict: DestinationVerdict
    error: str = ""
    probed_at: float | None = None
    succeeded_at: float | None = None
    #: Since when the destination has been Healthy without interruption.
    healthy_since: float | None = None


#: Sends one probe to the destination with this name. Cancelled when it takes too long.
Prober = Callable[[str], Awaitable[ProbeResult]]


def log_change(change: VerdictChange) -> None:
    """Log the new health of a destination, and the reason."""
    before, after = change.before, change.after
    if before.health is not after.health:
        worse = _SEVERITY[after.health] > _SEVERITY[before.health]
        error_text = f" ({change.error})" if change.error else ""
        log.log(
            logging.WARNING if worse else logging.INFO,
            "destination %s: %s -> %s: %s%s",
            *(change.name, before.health, after.health, after.reason, error_text),
        )
    if after.drain_request != before.drain_request:
        drain_text = (
            f"is draining: {after.drain_request.reason}"
            if after.drain_request
            else "takes new requests again"
        )
        log.info("destination %s %s", change.name, drain_text)


_SEVERITY = {Health.HEALTHY: 0, Health.UNKNOWN: 0, Health.DEGRADED: 1, Health.UNHEALTHY: 2}


class Destinations:
    """All destinations of a process; each has one state and one probe loop, whatever number of pools it is in."""

    def __init__(
        self,
        prober: Prober,
        *,
        health_settings: HealthSettings = RECOMMENDED_SETTINGS,
        probe_settings: probe_schedule.ProbeSettings = probe_schedule.DEFAULTS,
        on_change: Callable[[VerdictChange], None] = log_change,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Start without destinations."""
        self._prober = prober
        self._health_settings = health_settings
        self._probe_settings = probe_settings
        self._on_change = on_change
        self.now = now
        self.chance = chance
        self._destinations: dict[str, MonitoredDestination] = {}
        self._loops: dict[str, _ProbeLoop] = {}
        self._refreshed_at = now()
        #: Incremented after every change that affects a picker.
        self.version = 0

    def set_destinations(self, names: Iterable[str]) -> None:
        """Set the destinations: start probing new ones, drop those not in `names`, and keep the others."""
        desired_names = dict.fromkeys(names)
        for name in [name for name in self._destinations if name not in desired_names]:
            self._loops.pop(name).cancel()
            del self._destinations[name]
            self.version += 1
        for name in desired_names:
            if name not in self._destinations:
                at = self.now()
                machine = Destination(at, self._health_settings)
                destination = self._destinations[name] = MonitoredDestination(
                    name, machine, machine.verdict(at)
                )
                self._loops[name] = _ProbeLoop(self, destination, self._prober, self._probe_settings)
                self.version += 1

    async def close(self) -> None:
        """Stop all probes."""
        loops = list(self._loops.values())
        self.set_destinations(())
        for loop in loops:
            await loop.wait_closed()

    def __iter__(self) -> Iterator[MonitoredDestination]:
        self._refresh()
        return iter(list(self._destinations.values()))

    def get(self, name: str) -> MonitoredDestination | None:
        """Return a destination by name; None if there is none."""
        return self._destinations.get(name)

    def record_request(self, name: str, outcome: RequestOutcome) -> None:
        """Record the result of a proxied request; do not record one that its client cancelled."""
        destination = self._destinations.get(name)
        if destination is None:
            return  # it was removed while the request was in flight
        at = self.now()
        destination.state_machine.record_request(outcome, at)
        if outcome is RequestOutcome.SUCCESS:
            destination.succeeded_at = at
            return
        self._loops[name].probe_sooner()
        self.update_verdict(destination)

    def declare_degraded(self, name: str, duration: float | None = None) -> None:
        """Record that a destination declared itself degraded for `duration` seconds.

        None: the setting `degraded_signal_duration`.
        """
        self._update(name, lambda machine, at: machine.declare_degraded(at, duration))

    def withdraw_degraded(self, name: str) -> None:
        """Record that a destination withdrew its degraded declaration."""
        self._update(name, lambda machine, at: machine.withdraw(at))

    def drain(self, name: str, reason: str) -> None:
        """Drain a destination: no new requests."""
        self._update(name, lambda machine, at: machine.drain(reason, at))

    def undrain(self, name: str) -> None:
        """Undrain a destination."""
        self._update(name, lambda machine, at: machine.undrain())

    def update_verdict(self, destination: MonitoredDestination) -> None:
        """Update the verdict of a destination, and report a change."""
        at = self.now()
        before, destination.verdict = destination.verdict, destination.state_machine.verdict(at)
        healthy = destination.verdict.health is Health.HEALTHY
        if not healthy:
            destination.healthy_since = None
        elif destination.healthy_since is None:
            destination.healthy_since = at
        if (before.health, before.drain_request) != (
            destination.verdict.health,
            destination.verdict.drain_request,
        ):
            self.version += 1
            self._on_change(VerdictChange(destination.name, before, destination.verdict, destination.error))

    def candidates(self, weights: Mapping[str, float]) -> Iterator[Candidate]:
        """Yield those of the names that exist, as candidates for a picker."""
        self._refresh()
        for name, weight in weights.items():
            destination = self._destinations.get(name)
            if destination is not None and weight > 0:
                health = destination.verdict.health
                is_draining = destination.verdict.drain_request is not None
                yield Candidate(
                    name, health, weight, is_draining, destination.healthy_since, destination.succeeded_at
                )

    def _update(self, name: str, update: Callable[[Destination, float], None]) -> None:
        destination = self._destinations.get(name)
        if destination is not None:
            update(destination.state_machine, self.now())
            self.update_verdict(destination)

    def _refresh(self) -> None:
        at = self.now()
        if abs(at - self._refreshed_at) < _REFRESH_INTERVAL:
            return
        self._refreshed_at = at
        for destination in self._destinations.values():
            self.update_verdict(destination)


class DestinationPool:
    """A weighted set of destinations: those of one load balancer or one rule."""

    def __init__(
        self,
        destinations: Destinations,
        weights: Mapping[str, float],
        settings: picker_rules.PickerSettings = picker_rules.DEFAULTS,
    ) -> None:
        """Pick from these destinations; one with weight 0 gets no requests."""
        self._destinations = destinations
        self._weights = dict(weights)
        self._settings = settings
        self._cached_picker: tuple[int, float, Picker] | None = None

    def pick(self, tried_names: Collection[str] = (), failed_names: Collection[str] = ()) -> Pick | None:
        """Pick a destination for a new request; None: there is none. A retried request goes

        1. to one outside `tried_names`, by the shares of a first attempt,
        2. to one that responded, even with an error: none of `failed_names`, which were unreachable or disconnected,
        3. to an Unhealthy one, which has no share, before one of `failed_names`,
        4. to any.
        """
        picker, chance = self.picker(), self._destinations.chance
        if tried_names:
            for excluded_names in (tried_names, failed_names):
                pick = picker.pick(chance(), excluded_names) if excluded_names else None
                if pick is not None:
                    return pick
        if failed_names:
            other_candidates = [
                candidate for candidate in self._candidates() if candidate.name not in failed_names
            ]
            pick = Picker(other_candidates, self._destinations.now(), self._settings).pick(chance())
            if pick is not None:
                return pick
        return picker.pick(chance())

    def has_other(self, failed_names: Collection[str]) -> bool:
        """Return whether a destination outside `failed_names` takes new requests."""
        return any(
            candidate.name not in failed_names and not candidate.is_draining
            for candidate in self._candidates()
        )

    def keep(self, name: str) -> Pick | None:
        """Return the session's destination if it may still be used; else a new one."""
        return self.picker().keep(name, self._destinations.chance())

    def picker(self) -> Picker:
        """Return the picker for the current state."""
        at = self._destinations.now()
        if self._cached_picker is not None:
            version, built_at, picker = self._cached_picker
            if version == self._destinations.version and abs(at - built_at) < _REFRESH_INTERVAL:
                return picker
        picker = Picker(self._candidates(), at, self._settings)
        self._cached_picker = self._destinations.version, at, picker
        return picker

    def _candidates(self) -> Iterator[Candidate]:
        return self._destinations.candidates(self._weights)


class _ProbeLoop:
    """Probe loop of one destination, independent of all others."""

    def __init__(
        self,
        destinations: Destinations,
        destination: MonitoredDestination,
        prober: Prober,
        settings: probe_schedule.ProbeSettings,
    ) -> None:
        self._destinations = destinations
        self._destination = destination
        self._prober = prober
        self._settings = settings
        self._wake_event = asyncio.Event()
        loop = asyncio.get_running_loop()
        # The schedule uses the loop's clock: setting the system clock must not delay probes.
        self._clock = loop.time
        self._probe_started_at = loop.time()
        self._due_at = probe_schedule.first_probe_at(loop.time(), destinations.chance(), settings)
        self._task = background.start(self._run(), name=f"probes of {destination.name}")

    def cancel(self) -> None:
        self._task.cancel()

    async def wait_closed(self) -> None:
        """Wait for the end of the loop after `cancel`."""
        await asyncio.wait([self._task])

    def probe_sooner(self) -> None:
        """Probe sooner, because a request failed."""
        active, chance = self._destination.state_machine.active, self._destinations.chance()
        due_at = probe_schedule.earlier_probe_at(
            self._due_at, active, self._probe_started_at, chance, self._settings
        )
        if due_at < self._due_at:
            self._due_at = due_at
            self._wake_event.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._wait_until_due()
                await self._probe()
            except Exception:
                log.exception("probe of %s failed unexpectedly", self._destination.name)
                self._due_at = self._clock() + self._settings.interval

    async def _wait_until_due(self) -> None:
        while (remaining := self._due_at - self._clock()) > 0:
            self._wake_event.clear()
            await background.wait_for(self._wake_event, remaining)

    async def _probe(self) -> None:
        destination, now = self._destination, self._destinations.now
        self._probe_started_at = self._clock()
        # No other probe before this one ends.
        self._due_at = float("inf")
        sent_at = now()
        try:
            async with asyncio.timeout(self._settings.timeout):
                probe_result = await self._prober(destination.name)
        except TimeoutError:
            probe_result = ProbeResult(ProbeOutcome.FAILURE, f"no answer within {self._settings.timeout:g} s")
        destination.error, destination.probed_at = probe_result.error, sent_at
        if probe_result.outcome is ProbeOutcome.SUCCESS:
            destination.succeeded_at = sent_at
        destination.state_machine.record_probe(probe_result.outcome, sent_at)
        if probe_result.status is not None:
            self._apply_status(probe_result.status)
        self._destinations.update_verdict(destination)
        chance = self._destinations.chance()
        self._due_at = probe_schedule.next_probe_at(
            destination.state_machine.active, self._probe_started_at, self._clock(), chance, self._settings
        )

    def _apply_status(self, status: InstanceStatus) -> None:
        name, destinations = self._destination.name, self._destinations
        if status.degraded_reason is None:
            destinations.withdraw_degraded(name)
        else:
            duration = _STATUS_LIFETIME_PROBES * (self._settings.interval + self._settings.timeout)
            destinations.declare_degraded(name, duration)
        if status.draining_reason is None:
            destinations.undrain(name)
        else:
            destinations.drain(name, status.draining_reason)
