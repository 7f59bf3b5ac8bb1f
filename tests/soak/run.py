"""Play a schedule of faults to a fleet and its console, and judge after each what was seen."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.fakes.receivers import Receiver, run_receiver
from tests.soak import invariants
from tests.soak.console import SoakConsole
from tests.soak.fleet import SoakFleet
from tests.soak.invariants import Size
from tests.soak.observer import Observer
from tests.soak.schedule import Scope, Shape, Step
from tests.soak.users import Connection, Users

#: Seconds for which what is shown and what users find may contradict each other: a resource lives 20 s, a report of
#: tunnels 10 s, and a machine that does other things too needs its rounds.
GRACE = 45.0
#: A fleet heals within this time after a fault, seconds.
_HEALED = 240.0
#: A fault that lasts so long has an incident, seconds: a missed heartbeat, two rounds, and 6 s of its rule.
_INCIDENT_AFTER = 35.0
#: A living connection brings its message back within this time after the fleet has healed.
_ECHO_WITHIN = 30.0
_POLL = 0.5

#: Most growth between the halves of a soak. A balancer and a forwarder have two files for each link. Polls keep up to a
#: dozen connections to an instance that was silent, for up to two minutes after its fault.
LIMITS = {"bytes": 30e6, "files": 16, "link-files": 64, "lasting-keys": 5}
#: Most growth for each step: a fault changes every agent and instance a few times, and is notified. Each round has
#: three keys that expire after 10 min.
LIMITS_PER_STEP = {"rows": 100, "lines": 60, "expiring-keys": 300}


@dataclass
class Outcome:
    """What a soak found."""

    seed: int
    faults: int = 0
    skipped_count: int = 0
    violations: list[str] = field(default_factory=list)
    #: The largest shares of their limits that processes, tables, servers and logs grew, by name.
    growth: dict[str, float] = field(default_factory=dict)
    incidents: int = 0
    notifications: int = 0
    connections: int = 0
    cut_by_kills: int = 0
    echoes: int = 0
    #: Seconds until the work of a killed program went on, by its name; of a soak with external servers.
    takeovers: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0


class Soak:
    """A fleet, a console, users, and somebody who watches them."""

    def __init__(
        self, seed: int, shape: Shape, fleet: SoakFleet, console: SoakConsole, users: Users, receiver: Receiver,
        write_line: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.outcome = Outcome(seed)
        self._shape = shape
        self._fleet = fleet
        self._console = console
        self._users = users
        self._receiver = receiver
        self._write_line = write_line
        self._observer = Observer(fleet, console)
        self._measurements: list[Size] = []
        self._logs_read: dict[Path, int] = {}

    def run(self, steps: Sequence[Step], minutes: float) -> Outcome:
        """Play the steps that begin within this time; return what was found."""
        start = time.monotonic()
        with self._observer:
            self._await_healed(_HEALED)
            self._connect_users()
            self._measure()
            for step in steps:
                while time.monotonic() - start < min(step.at, 60.0 * minutes):
                    time.sleep(_POLL)
                if self.outcome.faults and time.monotonic() - start + step.duration > 60.0 * minutes:
                    self.outcome.skipped_count = len(steps) - self.outcome.faults
                    break
                self._play(step, len(steps))
            self._await_quiet()
        self._judge_end()
        self.outcome.seconds = round(time.monotonic() - start, 1)
        return self.outcome

    def _play(self, step: Step, count: int) -> None:
        begin = time.monotonic()
        numbers_before = set(self._observer.incidents)
        was_open = {incident.cause for incident in self._observer.open_incidents()}
        seen_after = self._inject(step)
        undone_at = time.monotonic()
        is_healed = self._await_healed(_HEALED)
        healed_after = time.monotonic() - undone_at
        samples = self._observer.samples_since(begin)
        sentences = invariants.find_wrong_verdicts(samples, GRACE)
        if step.fault.scope is Scope.INSTANCE:
            faulted = [sample for sample in samples if sample.end <= undone_at]
            sick = step.fault.target if step.fault.makes_sick else ""
            sentences += invariants.find_wrong_instances(faulted, sick, GRACE)
        if not is_healed:
            sentences.append(f"not healed within {_HEALED:.0f} s: {self._describe_state()}")
        sentences += self._judge_connections(step)
        incidents = [
            incident for number, incident in self._observer.incidents.items() if number not in numbers_before
        ]
        is_expected = step.duration > _INCIDENT_AFTER and step.fault.target not in was_open
        sentences += invariants.find_wrong_incidents(step, incidents, is_expected=is_expected)
        sentences += self._read_tracebacks()
        self._connect_users()
        self._measure()
        self.outcome.faults += 1
        self.outcome.violations += [
            f"step {step.number} ({step.label}): {sentence}" for sentence in sentences
        ]
        states = sorted({state for sample in samples for state in sample.states.values()})
        causes = ", ".join(f"{incident.cause_kind} {incident.cause}" for incident in incidents) or "none"
        self._write_line(
            f"[{step.number}/{count}] {step.label}: {seen_after}; healed after {healed_after:.1f} s; "
            f"agents {'/'.join(states)}; incidents: {causes}; {'; '.join(sentences) or 'ok'}"
        )

    def _inject(self, step: Step) -> str:
        """Inject the fault, wait as long as it lasts, undo it; return what was seen of it."""
        if step.fault.scope is Scope.CONSOLE:
            begin = time.monotonic()
            self._console.kill(step.fault.target)
            return f"runs again after {time.monotonic() - begin:.1f} s"
        begin = time.monotonic()
        self._fleet.inject(step.fault)
        seen_after = "not shown as failing"
        try:
            is_killed = not step.killed_program
            while (seconds := time.monotonic() - begin) < step.duration:
                if not is_killed and seconds > step.duration / 2:
                    self._console.kill(step.killed_program)
                    is_killed = True
                newest = self._observer.newest
                if (
                    seen_after.startswith("not")
                    and newest.begin > begin
                    and newest.instances.get(step.fault.target, "ok") != "ok"
                ):
                    seen_after = f"{newest.instances[step.fault.target]} after {newest.end - begin:.1f} s"
                time.sleep(_POLL)
        finally:
            self._fleet.undo(step.fault)
        return seen_after

    def _await_healed(self, seconds: float) -> bool:
        """Wait until everything is shown as working and users reach every agent."""
        asked_at = time.monotonic()

        def is_healed() -> bool:
            newest = self._observer.newest
            return (
                newest.begin > asked_at
                and len(newest.states) == self._shape.agents
                and set(newest.states.values()) <= invariants.WORKING_STATES
                and set(newest.instances.values()) == {"ok"}
                and len(newest.reachable) == self._shape.agents
                and all(newest.reachable.values())
            )

        while not is_healed():
            if time.monotonic() - asked_at > seconds:
                return False
            time.sleep(_POLL)
        return True

    def _await_quiet(self) -> None:
        """Wait until no incident is open, so that the last ones are judged too."""
        deadline = time.monotonic() + _HEALED
        while not self._observer.is_quiet and time.monotonic() < deadline:
            time.sleep(_POLL)

    def _describe_state(self) -> str:
        newest = self._observer.newest
        agents = {
            name: state for name, state in newest.states.items() if state not in invariants.WORKING_STATES
        }
        instances = {name: state for name, state in newest.instances.items() if state != "ok"}
        unreachable = [name for name, is_reachable in newest.reachable.items() if not is_reachable]
        return f"agents {agents}, instances {instances}, unreachable {unreachable}"

    def _connect_users(self) -> None:
        """Open a connection to each agent that has none, through the proxy with its tunnel."""
        live = {connection.agent for connection in self._users.connections if not connection.failure}
        for agent, proxies in self._observer.proxies_by_agent().items():
            if agent in live or not proxies:
                continue
            path = (proxies[0], "proxy-balancer", self._fleet.agent_process(agent))
            with contextlib.suppress(OSError):  # the next step tries again
                self._users.connect(agent, self._fleet.connect_address(proxies[0]), path)
                self.outcome.connections += 1

    def _judge_connections(self, step: Step) -> list[str]:
        """Return the connections that a fault cut although it killed nothing on their path, and those that hang."""
        deadline = time.monotonic() + _ECHO_WITHIN
        now = time.monotonic()
        while time.monotonic() < deadline and any(
            _hangs(connection, now) for connection in self._users.connections
        ):
            time.sleep(_POLL)
        sentences = []
        for connection in self._users.connections:
            if _hangs(connection, now):
                sentences.append(
                    f"the user of {connection.agent} waits for bytes {_ECHO_WITHIN:.0f} s after healing"
                )
            elif connection.failure and invariants.may_cut(step, connection.path):
                self.outcome.cut_by_kills += 1
            elif connection.failure:
                path = ", ".join(connection.path)
                sentences.append(
                    f"the user of {connection.agent} through {path} was cut: {connection.failure}"
                )
        self.outcome.echoes += sum(
            connection.echo_count for connection in self._users.connections if connection.failure
        )
        self._users.connections = [
            connection for connection in self._users.connections if not connection.failure
        ]
        return sentences

    def _measure(self) -> None:
        """Measure every process, table, Redis and log."""
        amounts: dict[str, float] = {}
        for name, process in {**self._fleet.processes(), **self._console.processes()}.items():
            with contextlib.suppress(psutil.Error):  # it has just ended
                files = "link-files" if name.endswith("-balancer") or name == "forwarder" else "files"
                amounts[f"{name} ({process.pid}) bytes"] = process.memory_info().rss
                amounts[f"{name} ({process.pid}) {files}"] = process.num_fds()
        amounts |= {f"{table} rows": count for table, count in self._console.count_rows().items()}
        amounts |= {f"console {unit}": count for unit, count in self._console.count_keys().items()}
        amounts |= {f"backend {unit}": count for unit, count in self._fleet.count_keys().items()}
        for log in self._logs():
            if log.exists():
                amounts[f"{log.parent.name}/{log.name} lines"] = log.read_bytes().count(b"\n")
        self._measurements.append(Size(amounts))

    def _judge_end(self) -> None:
        """Judge growth, notifications and processes that ended by themselves."""
        self.outcome.echoes += sum(connection.echo_count for connection in self._users.connections)
        shares = invariants.find_growth(self._measurements, LIMITS, LIMITS_PER_STEP)
        largest = sorted(shares, key=lambda name: -shares[name])[:10]
        self.outcome.growth = {name: round(shares[name], 2) for name in largest}
        self.outcome.violations += [
            f"{name} grew to {self._measurements[-1].amounts.get(name, 0):,.0f}, {shares[name]:.1f} times its limit"
            for name in largest
            if shares[name] > 1
        ]
        notifications = [_notification_of(key, body) for key, body in zip(
            self._receiver.keys, self._receiver.bodies, strict=True
        )]  # fmt: skip
        self.outcome.violations += invariants.find_wrong_notifications(notifications)
        self.outcome.notifications = len(notifications)
        self.outcome.incidents = len(self._observer.incidents)
        self.outcome.violations += self._read_tracebacks()

    def _read_tracebacks(self) -> list[str]:
        """Return the tracebacks in what was logged since the last time, the end of each."""
        sentences = []
        for log in self._logs():
            if not log.exists():
                continue
            with log.open("rb") as file:
                file.seek(self._logs_read.get(log, 0))
                content = file.read()
            self._logs_read[log] = self._logs_read.get(log, 0) + len(content)
            tracebacks = invariants.find_tracebacks(content.decode(errors="replace"))
            sentences += [f"traceback in {log.name}: {' '.join(text.split())[-600:]}" for text in tracebacks]
        return sentences

    def _logs(self) -> Iterator[Path]:
        yield from self._fleet.logs
        yield from self._console.logs


def _hangs(connection: Connection, since: float) -> bool:
    return not connection.failure and connection.echoed_at < since


def _notification_of(key: str, body: Any) -> tuple[str, str, str]:
    return key, body.get("incident", {}).get("id", ""), body.get("kind", "")


@contextlib.contextmanager
def run_soak(home: Path, seed: int, shape: Shape, write_line: Callable[[str], None]) -> Iterator[Soak]:
    """Run a fleet, its console and its users in `home`."""
    users = Users()
    fleet = SoakFleet(home, shape, 0)
    with contextlib.ExitStack() as stack:
        users.start()
        stack.callback(users.stop)
        fleet = SoakFleet(home, shape, users.port)
        receiver = stack.enter_context(run_receiver())
        stack.callback(fleet.stop)
        fleet.start()
        console = SoakConsole(home, {"REFLOAT_AUTHS": fleet.auths}, receiver.url)
        stack.callback(console.stop)
        console.start()
        yield Soak(seed, shape, fleet, console, users, receiver, write_line)
