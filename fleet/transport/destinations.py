"""The destinations a process sends requests to: probed each by itself, told how requests ended, and picked from.

The shell around fleet/protocol/{health,probe_schedule,picker}.py, for one event loop. docs/destination-health.md
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
    RECOMMENDED,
    Destination,
    Health,
    Probe,
    Proxied,
    Settings,
    Verdict,
)
from fleet.protocol.destination.instance_status import Said
from fleet.protocol.destination.picker import Candidate, Pick, Picker

log = logging.getLogger(__name__)

#: What only the clock changes (expiries, slow starts) is seen this much late at most, seconds.
_REFRESH = 0.5
#: What a destination says of itself in the answer to a probe holds for so many more probes without an answer.
_HEARD_FOR = 3


@dataclass(frozen=True, slots=True)
class Answer:
    """How a probe ended, and in words if not well."""

    outcome: Probe
    error: str = ""
    #: What the destination says of itself; None: it did not answer, so what it said before still stands.
    said: Said | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A destination's verdict became another one; `error` is what the last probe met."""

    name: str
    before: Verdict
    after: Verdict
    error: str


@dataclass(slots=True, eq=False)
class Watched:
    """One destination. Times are seconds since the epoch, as the machine has them."""

    name: str
    machine: Destination
    verdict: Verdict
    error: str = ""
    probed_at: float | None = None
    succeeded_at: float | None = None
    #: Since when the verdict is Healthy without a break.
    healthy_since: float | None = None


#: Sends one probe to the destination of this name. It is cancelled when it takes too long.
Prober = Callable[[str], Awaitable[Answer]]


def log_change(change: Change) -> None:
    """Say on the log what a destination became, and why."""
    before, after = change.before, change.after
    if before.health is not after.health:
        worse = _ORDER[after.health] > _ORDER[before.health]
        met = f" ({change.error})" if change.error else ""
        log.log(
            logging.WARNING if worse else logging.INFO,
            "destination %s: %s -> %s: %s%s",
            *(change.name, before.health, after.health, after.reason, met),
        )
    if after.draining != before.draining:
        said = f"drains: {after.draining.reason}" if after.draining else "takes new requests again"
        log.info("destination %s %s", change.name, said)


_ORDER = {Health.HEALTHY: 0, Health.UNKNOWN: 0, Health.DEGRADED: 1, Health.UNHEALTHY: 2}


class Destinations:
    """All of a process; each has one machine and one loop of probes, however many pools it is in."""

    def __init__(
        self,
        prober: Prober,
        *,
        settings: Settings = RECOMMENDED,
        probes: probe_schedule.Settings = probe_schedule.DEFAULTS,
        on_change: Callable[[Change], None] = log_change,
        now: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Know none yet."""
        self._prober = prober
        self._settings = settings
        self._probes = probes
        self._on_change = on_change
        self.now = now
        self.chance = chance
        self._watched: dict[str, Watched] = {}
        self._loops: dict[str, _Loop] = {}
        self._refreshed_at = now()
        #: Greater after every change of what a picker should know.
        self.version = 0

    def keep(self, names: Iterable[str]) -> None:
        """Begin to probe those that are new, end with those that are not named; the others stay as they are."""
        wanted = dict.fromkeys(names)
        for name in [name for name in self._watched if name not in wanted]:
            self._loops.pop(name).cancel()
            del self._watched[name]
            self.version += 1
        for name in wanted:
            if name not in self._watched:
                at = self.now()
                machine = Destination(at, self._settings)
                one = self._watched[name] = Watched(name, machine, machine.verdict(at))
                self._loops[name] = _Loop(self, one, self._prober, self._probes)
                self.version += 1

    async def close(self) -> None:
        """End all probes."""
        loops = list(self._loops.values())
        self.keep(())
        for loop in loops:
            await loop.ended()

    def __iter__(self) -> Iterator[Watched]:
        self._refresh()
        return iter(list(self._watched.values()))

    def get(self, name: str) -> Watched | None:
        """One of them."""
        return self._watched.get(name)

    def proxied(self, name: str, result: Proxied) -> None:
        """A request to it ended; one that its client gave up is not to be told."""
        one = self._watched.get(name)
        if one is None:
            return  # it was taken out while the request was on its way
        at = self.now()
        one.machine.proxied(result, at)
        if result is Proxied.SUCCESS:
            one.succeeded_at = at
            return
        self._loops[name].hasten()
        self.conclude(one)

    def declare_degraded(self, name: str, lasts: float | None = None) -> None:
        """It said so other than in an answer, for so many seconds."""
        self._tell(name, lambda machine, at: machine.declare_degraded(at, lasts))

    def withdraw(self, name: str) -> None:
        """It takes that back."""
        self._tell(name, lambda machine, at: machine.withdraw(at))

    def drain(self, name: str, reason: str) -> None:
        """An operator wants no new requests there."""
        self._tell(name, lambda machine, at: machine.drain(reason, at))

    def undrain(self, name: str) -> None:
        """It takes requests again."""
        self._tell(name, lambda machine, at: machine.undrain())

    def conclude(self, one: Watched) -> None:
        """Take a verdict that may have changed, and tell if it has."""
        at = self.now()
        before, one.verdict = one.verdict, one.machine.verdict(at)
        healthy = one.verdict.health is Health.HEALTHY
        if not healthy:
            one.healthy_since = None
        elif one.healthy_since is None:
            one.healthy_since = at
        if (before.health, before.draining) != (one.verdict.health, one.verdict.draining):
            self.version += 1
            self._on_change(Change(one.name, before, one.verdict, one.error))

    def candidates(self, weights: Mapping[str, float]) -> Iterator[Candidate]:
        """Those of these names that are known, as a picker sees them."""
        self._refresh()
        for name, weight in weights.items():
            one = self._watched.get(name)
            if one is not None and weight > 0:
                health = one.verdict.health
                draining = one.verdict.draining is not None
                yield Candidate(name, health, weight, draining, one.healthy_since, one.succeeded_at)

    def _tell(self, name: str, say: Callable[[Destination, float], None]) -> None:
        one = self._watched.get(name)
        if one is not None:
            say(one.machine, self.now())
            self.conclude(one)

    def _refresh(self) -> None:
        at = self.now()
        if abs(at - self._refreshed_at) < _REFRESH:
            return
        self._refreshed_at = at
        for one in self._watched.values():
            self.conclude(one)


class Pool:
    """Some of the destinations, with weights: those of one balancer, or of one rule."""

    def __init__(
        self,
        destinations: Destinations,
        weights: Mapping[str, float],
        settings: picker_rules.Settings = picker_rules.DEFAULTS,
    ) -> None:
        """Pick from these; a weight of 0 gets nothing."""
        self._destinations = destinations
        self._weights = dict(weights)
        self._settings = settings
        self._built: tuple[int, float, Picker] | None = None

    def pick(self, tried: Collection[str] = (), failed: Collection[str] = ()) -> Pick | None:
        """Pick a destination for a new request; None: there is none. A request that is sent again goes

        1. to one that was not `tried`, by the shares of a first try,
        2. to one that answered, though with an error: not one of `failed`, which were not reached or broke off,
        3. to an Unhealthy one, which has no share, before it goes to one of `failed`,
        4. to any.
        """
        picker, chance = self.picker(), self._destinations.chance
        if tried:
            for without in (tried, failed):
                picked = picker.pick(chance(), without) if without else None
                if picked is not None:
                    return picked
        if failed:
            others = [other for other in self._candidates() if other.name not in failed]
            picked = Picker(others, self._destinations.now(), self._settings).pick(chance())
            if picked is not None:
                return picked
        return picker.pick(chance())

    def has_other(self, failed: Collection[str]) -> bool:
        """Whether there is a destination that takes new requests beside those of `failed`."""
        return any(other.name not in failed and not other.draining for other in self._candidates())

    def keep(self, name: str) -> Pick | None:
        """Pick the destination a session had, if that may still be; else as for a new one."""
        return self.picker().keep(name, self._destinations.chance())

    def picker(self) -> Picker:
        """The picker of what is known now."""
        at = self._destinations.now()
        if self._built is not None:
            version, built_at, picker = self._built
            if version == self._destinations.version and abs(at - built_at) < _REFRESH:
                return picker
        picker = Picker(self._candidates(), at, self._settings)
        self._built = self._destinations.version, at, picker
        return picker

    def _candidates(self) -> Iterator[Candidate]:
        return self._destinations.candidates(self._weights)


class _Loop:
    """The probes of one destination, which waits for no other."""

    def __init__(
        self, destinations: Destinations, one: Watched, prober: Prober, settings: probe_schedule.Settings
    ) -> None:
        self._destinations = destinations
        self._one = one
        self._prober = prober
        self._settings = settings
        self._sooner = asyncio.Event()
        loop = asyncio.get_running_loop()
        # The schedule is on the loop's clock: a clock that is set must not hold up probes.
        self._clock = loop.time
        self._started_at = loop.time()
        self._due_at = probe_schedule.first_at(loop.time(), destinations.chance(), settings)
        self._task = background.start(self._run(), name=f"probes of {one.name}")

    def cancel(self) -> None:
        self._task.cancel()

    async def ended(self) -> None:
        """Wait for its end after `cancel`."""
        await asyncio.wait([self._task])

    def hasten(self) -> None:
        """A request failed: look sooner."""
        active, chance = self._one.machine.active, self._destinations.chance()
        due_at = probe_schedule.hastened(self._due_at, active, self._started_at, chance, self._settings)
        if due_at < self._due_at:
            self._due_at = due_at
            self._sooner.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._until_due()
                await self._probe()
            except Exception:
                log.exception("a probe of %s broke", self._one.name)
                self._due_at = self._clock() + self._settings.interval

    async def _until_due(self) -> None:
        while (left := self._due_at - self._clock()) > 0:
            self._sooner.clear()
            await background.wait_for(self._sooner, left)

    async def _probe(self) -> None:
        one, now = self._one, self._destinations.now
        self._started_at = self._clock()
        # Not before the probe ends may another one be wanted.
        self._due_at = float("inf")
        sent_at = now()
        try:
            async with asyncio.timeout(self._settings.timeout):
                answer = await self._prober(one.name)
        except TimeoutError:
            answer = Answer(Probe.FAILURE, f"no answer within {self._settings.timeout:g} s")
        one.error, one.probed_at = answer.error, sent_at
        if answer.outcome is Probe.SUCCESS:
            one.succeeded_at = sent_at
        one.machine.probed(answer.outcome, sent_at)
        if answer.said is not None:
            self._hear(answer.said)
        self._destinations.conclude(one)
        chance = self._destinations.chance()
        self._due_at = probe_schedule.next_at(
            one.machine.active, self._started_at, self._clock(), chance, self._settings
        )

    def _hear(self, said: Said) -> None:
        name, destinations = self._one.name, self._destinations
        if said.degraded is None:
            destinations.withdraw(name)
        else:
            lasts = _HEARD_FOR * (self._settings.interval + self._settings.timeout)
            destinations.declare_degraded(name, lasts)
        if said.draining is None:
            destinations.undrain(name)
        else:
            destinations.drain(name, said.draining)
