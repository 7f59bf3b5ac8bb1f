"""A soak of two of every process with PostgreSQL and Valkey: a fault of an instance and a killed program in each step.

After each kill: how long until the work of the killed program went on. At the end: nothing lost, nothing doubled, of
incidents, notifications, changes and entries of the audit log.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from typing_extensions import override

from fleet.processes import valkey
from tests.fakes.receivers import run_receiver
from tests.flow.postgres import run_database
from tests.soak.console import UnavailableError
from tests.soak.external import PROGRAMS, SERVERS, ExternalConsole
from tests.soak.fleet import SoakFleet
from tests.soak.run import Soak
from tests.soak.schedule import Fault, Scope, Shape, Step
from tests.soak.users import Users

#: Seconds until the work of a killed program must go on: a lease of changes lasts 30 s, that of alerts 15 s.
_TAKEOVER_WITHIN = 120.0
#: How long a killed server stays down, seconds, and how long a change may take.
_DOWNTIME = 8.0
_CHANGE_WITHIN = 240.0
_POLL = 0.25
_DURATIONS, _GAPS = (45.0, 60.0), (3.0, 8.0)


def plan_external(seed: int, minutes: float, shape: Shape) -> list[Step]:
    """Return the steps of a soak of this kind: each program and server is killed once before one is killed again."""
    rng = random.Random(seed)
    proxies = [f"proxy-{number}" for number in range(1, shape.proxies + 1)]
    steps: list[Step] = []
    bag: list[str] = []
    at = 0.0
    while not steps or at < 60.0 * minutes:
        if not bag:
            bag = [*PROGRAMS, *SERVERS]
            rng.shuffle(bag)
        # Another proxy each time, so that no incident counts as flapping.
        fault = Fault(
            *rng.choice((("freeze", "resume"), ("blackhole", "unblackhole"))),
            proxies[len(steps) % len(proxies)],
            Scope.INSTANCE,
        )
        at += rng.uniform(*_GAPS)
        duration = round(rng.uniform(*_DURATIONS), 1)
        steps.append(Step(len(steps) + 1, round(at, 1), duration, fault, bag.pop()))
        at += duration + 20.0
    return steps


class ExternalSoak(Soak):
    """Adds kills that last, and a change of the networking config in each step."""

    _console: ExternalConsole

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._changes: list[int] = []

    @override
    def _inject(self, step: Step) -> str:
        begin = time.monotonic()
        name = step.killed_program
        self._fleet.inject(step.fault)
        try:
            self._console.kill(name)
            killed_at = time.time()
            if name in SERVERS:
                _sleep_until(begin + _DOWNTIME)
                self._console.restart(name)
                killed_at = time.time()
            takeover = self._await_takeover(name, killed_at)
            change_text = self._make_change(step.number)
            if name.startswith("worker-actions"):
                takeover = time.time() - killed_at
            self.outcome.takeovers.setdefault(name, []).append(round(takeover, 1))
            _sleep_until(begin + step.duration)
        finally:
            self._fleet.undo(step.fault)
            if name not in SERVERS:
                self._console.restart(name)
        return f"work of {name} went on after {takeover:.1f} s, {change_text}"

    def _await_takeover(self, name: str, killed_at: float) -> float:
        """Wait until the work of a program goes on; return the seconds since it was killed or, a server, restarted."""
        signs: dict[str, Callable[[float], bool]] = {
            "web": self._answers_requests,
            "worker-polls": self._concludes_rounds,
            "beat": self._concludes_rounds,
            "valkey": self._concludes_rounds,
            # The change that follows is their work.
            "worker-actions": self._answers_requests,
            "alerts": self._evaluates_alerts,
            "postgres": self._evaluates_alerts,
        }
        has_gone_on = signs[name.rstrip("-12")]
        while not self._try(has_gone_on, killed_at):
            if time.time() - killed_at > _TAKEOVER_WITHIN:
                self.outcome.violations.append(
                    f"the work of {name} did not go on within {_TAKEOVER_WITHIN:.0f} s"
                )
                break
            time.sleep(_POLL)
        return time.time() - killed_at

    def _try(self, sign: Callable[[float], bool], killed_at: float) -> bool:
        try:
            return sign(killed_at)
        except (UnavailableError, psycopg.Error):
            return False

    def _answers_requests(self, _killed_at: float) -> bool:
        return bool(self._console.get("version"))

    def _concludes_rounds(self, killed_at: float) -> bool:
        summary = self._console.get("fleet/summary")
        return not summary["is_stale"] and summary["age_ms"] / 1000 < time.time() - killed_at

    def _evaluates_alerts(self, killed_at: float) -> bool:
        rows = self._console.query("select extract(epoch from max(evaluated_at)) from fleet_alertclock")
        return float(rows[0][0] or 0) > killed_at

    def _make_change(self, number: int) -> str:
        """Plan and confirm a change, and wait until it is verified."""
        begin = time.monotonic()
        deadline = begin + _CHANGE_WITHIN
        change: dict[str, Any] = {}
        while time.monotonic() < deadline:
            with contextlib.suppress(UnavailableError):
                if not change:
                    revision = self._console.get("networking-config")["revision"]
                    body = {"fields": {"idle_timeout_message": f"step {number}"}}
                    change = self._console.send("POST", "networking-config/plan", body, revision)
                    self._changes.append(change["id"])
                change = self._console.get(f"changes/{change['id']}")
                if change["state"] == "planned":
                    reason = {"reason": "soak", "confirmation": change["confirmation_required"]}
                    self._console.send("POST", f"changes/{change['id']}/confirm", reason, change["revision"])
                if change["state"] in ("verified", "failed", "cancelled"):
                    break
            time.sleep(_POLL)
        state = change.get("state", "not planned")
        if state != "verified":
            self.outcome.violations.append(
                f"the change of step {number} is {state}: {change.get('detail', '')}"
            )
        return f"change {state} after {time.monotonic() - begin:.1f} s"

    @override
    def _judge_end(self) -> None:
        super()._judge_end()
        self.outcome.violations += self._find_lost_and_doubled()

    def _find_lost_and_doubled(self) -> list[str]:
        """Compare incidents, notifications, changes and the audit log with what was done."""
        sentences = []
        audits = Counter(
            self._console.query("select change_id, action from fleet_auditentry where change_id is not null")
        )
        sentences += [
            f"{count} audit entries {action} of change {change}"
            for (change, action), count in audits.items()
            if count > 1
        ]
        for change in self._changes:
            for action in ("plan", "confirm", "verified"):
                if not audits[change, f"networking-config.{action}"]:
                    sentences.append(f"no audit entry {action} of change {change}")
        stored = {row[0] for row in self._console.query("select id from fleet_change")}
        if stored != set(self._changes):
            sentences.append(f"changes {sorted(self._changes)} were planned, {sorted(stored)} are stored")
        notified = Counter(
            (body["incident"]["id"], body["kind"]) for body in self._receiver.bodies if body.get("incident")
        )
        for incident in self._observer.incidents.values():
            if not any(notified[incident.id, kind] for kind in ("firing", "short-outage", "flapping")):
                sentences.append(f"incident {incident.id} was not notified")
        unsent = self._console.query("select count(*) from fleet_delivery where sent_at is null")[0][0]
        if unsent:
            sentences.append(f"{unsent} notifications were not sent")
        return sentences


def _sleep_until(moment: float) -> None:
    while (remainder := moment - time.monotonic()) > 0:
        time.sleep(min(remainder, _POLL))


@contextlib.contextmanager
def run_external_soak(
    home: Path, seed: int, shape: Shape, write_line: Callable[[str], None]
) -> Iterator[Soak]:
    """Run a fleet, a console of separate processes with servers of its own, and users, in `home`."""
    with contextlib.ExitStack() as stack:
        users = Users()
        users.start()
        stack.callback(users.stop)
        receiver = stack.enter_context(run_receiver())
        database = stack.enter_context(run_database())
        fleet = SoakFleet(home, shape, users.port)
        stack.callback(fleet.stop)
        fleet.start()
        settings = {"REFLOAT_AUTHS": fleet.auths}
        console = ExternalConsole(home, settings, receiver.url, database, valkey.find_free_port())
        stack.callback(console.stop)
        console.start()
        yield ExternalSoak(seed, shape, fleet, console, users, receiver, write_line)
