"""How soon a fault is seen, counted in rounds: a slow machine makes rounds late, and not more of them."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fleet.monitoring.state.connect import connect
from fleet.monitoring.state.poll_log import PollLog
from fleet.processes import valkey
from fleet.vocabulary.verdicts import State
from tests.fakes.waiting import eventually_sync
from tests.flow.alerting import sql
from tests.flow.running import Demo
from tests.flow.web import PREFIX

pytestmark = pytest.mark.slow

#: Most rounds that end between a fault and its verdict, those included that had asked before the fault.
MOST_ROUNDS = 8
_SILENT = "select min(round) from fleet_instancechange where instance = ? and new = 'silent' and round > ?"
_STRANDED = (
    f"select min(at) / 1000.0 from fleet_agentchange where new = {State.STRANDED:d} and at / 1000.0 > ?"
)


class Rounds:
    """The rounds of a demo's cluster, as its workers log them."""

    def __init__(self, home: Path) -> None:
        url = valkey.running_url(home / "valkey")
        assert url is not None
        self._log = PollLog(connect(url), PREFIX)

    def newest(self) -> int:
        """Return the number of the newest round."""
        return self._log.read_rounds("default")[0].number

    def count(self, since: float, *, last: int | None = None, started_before: float | None = None) -> int:
        """Count the rounds that ended after a moment, up to the round with a number, or to those that began later."""
        return sum(
            entry.ended_at > since
            and (last is None or entry.number <= last)
            and (started_before is None or entry.started_at < started_before)
            for entry in self._log.read_rounds("default")
        )


@contextmanager
def _frozen(demo: Demo, name: str) -> Iterator[float]:
    """Freeze an instance for as long as the block lasts; the moment, which a command would not tell so exactly."""
    (pid,) = (row["pid"] for row in json.loads(demo.fleet("ps", "--json")) if row["name"] == name)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield time.time()
    finally:
        os.kill(pid, signal.SIGCONT)


def _await_value(read: Callable[[], float | None]) -> float:
    values: list[float] = []

    def has_value() -> bool:
        value = read()
        values.extend([] if value is None else [value])
        return bool(values)

    eventually_sync(has_value, seconds=180.0)
    return values[0]


@pytest.mark.parametrize("name", ["proxy-1", "auth-1"])
def test_frozen_instance_is_not_responding_within_8_rounds(whole_demo: Demo, name: str) -> None:
    """By the history, whose changes have the number of their round, and the log of rounds."""
    (instance,) = (i["id"] for i in whole_demo.get("instances")["instances"] if i["name"] == name)
    rounds = Rounds(whole_demo.home)
    newest = rounds.newest()
    with _frozen(whole_demo, name) as frozen_at:
        silent_round = _await_value(lambda: sql(whole_demo.home, _SILENT, instance, newest)[0][0])

    assert 1 <= rounds.count(frozen_at, last=int(silent_round)) <= MOST_ROUNDS


def test_agents_of_a_frozen_proxy_are_stranded_within_8_rounds(whole_demo: Demo) -> None:
    """A change of an agent has the moment of its round."""
    with _frozen(whole_demo, "proxy-1") as frozen_at:
        stranded_at = _await_value(lambda: sql(whole_demo.home, _STRANDED, frozen_at)[0][0])

    assert 1 <= Rounds(whole_demo.home).count(frozen_at, started_before=stranded_at) <= MOST_ROUNDS
