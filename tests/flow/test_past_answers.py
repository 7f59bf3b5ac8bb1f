"""What the API answers with `?at=` about a past moment equals what it answered at that moment, field by field.

A real console with a real fleet, through faults, a drain, a campaign, and agents that come and go. Fields that the
history does not have are those of docs/reference/history.md, "Not kept", and no others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from fleet.monitoring.state.tables import NEWER_EVIDENCE_SENTENCE
from fleet.processes import children
from tests.fakes.waiting import eventually_sync
from tests.flow.postgres import postgresql
from tests.flow.running import Demo, start_demo
from tests.meta.house import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

AGENTS = 18
#: Several pages of agents.
PAGE_SIZE = 10
#: What no answer about the past has: docs/reference/history.md, "Not kept".
AGENT_FIELDS_NOT_KEPT = {"mode", "health_check", "policy_read_at", "heartbeat_at", "expires_at"}
INSTANCE_FIELDS_NOT_KEPT = {"attempts", "expires_at"}
#: Actions are offered for the present only; changes and incidents have times of their own (docs/reference/history.md).
HEADLINE_FIELDS_NOT_KEPT = {
    "actions",
    "activity",
    "causes",
    "changes",
    "incidents",
    "lead",
    "links",
    "more_count",
    "preventions",
    "text",
}
#: Fields about the answer itself.
ANSWER_FIELDS = {"age_ms"}
#: Seconds between two questions whether there is a newer round.
PAUSE_SECONDS = 0.4
#: Seconds for one step on a machine that is busy.
PATIENCE = 240.0
#: Changes are stored to the millisecond, and a prediction as a distance from its change.
TOLERANCE_SECONDS = 0.002

Document = dict[str, Any]


@dataclass(frozen=True)
class Answers:
    """What the API answered about one round."""

    summary: Document
    agents: dict[str, Document]
    instances: dict[str, Document]

    @property
    def is_ahead(self) -> bool:
        """Return whether evidence that is newer than the round contradicts it."""
        return any(agent["explanation"] == NEWER_EVIDENCE_SENTENCE for agent in self.agents.values())

    def count(self, *states: str) -> int:
        """Return the number of agents in these states."""
        return sum(self.summary["counts"][state] for state in states)

    @property
    def incidents(self) -> list[int]:
        """Return the numbers of the incidents in the headline."""
        return list(self.summary["headline"]["incidents"])

    def has_instance(self, state: str) -> bool:
        """Return whether an instance has this state."""
        return any(instance["state"] == state for instance in self.instances.values())

    @property
    def as_of(self) -> str:
        """Return the moment of the round."""
        return str(self.summary["as_of"])


class Recorder:
    """Asks the API for the present again and again, and keeps what it answered about each round."""

    def __init__(self, demo: Demo) -> None:
        self._demo = demo
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._record, daemon=True)
        #: Oldest first.
        self.answers: list[Answers] = []

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def await_answer(self, condition: Callable[[Answers], bool]) -> None:
        """Wait until answers are kept that are newer than this call and fulfil a condition."""
        start = len(self.answers)
        eventually_sync(lambda: any(map(condition, self.answers[start:])), seconds=PATIENCE)

    def _record(self) -> None:
        previous: Answers | None = None
        while not self._has_ended.is_set():
            try:
                if previous is not None and self._demo.get("fleet/summary")["as_of"] == previous.as_of:
                    # Whoever asks all the time keeps the console from its next round.
                    self._has_ended.wait(PAUSE_SECONDS)
                    continue
                answers = read_answers(self._demo)
            except (AssertionError, OSError):
                # Refused or late, on a machine that is busy: there is no answer to compare.
                previous = None
                continue
            if answers is None:
                continue
            if self.answers and previous is self.answers[-1] and previous.incidents != answers.incidents:
                # A round opens an incident as of its own moment, but a moment after it.
                self.answers.pop()
            # Answers about instances may be newer than the round: only what the answers of the round before it have,
            # too, is certain to be of the round.
            if (
                previous is not None
                and not answers.is_ahead
                and comparable_instances(previous) == comparable_instances(answers)
            ):
                self.answers.append(answers)
            previous = answers


def read_answers(demo: Demo, at: str = "") -> Answers | None:
    """Return the answers of the API; None if they are not all about one round."""
    moment = {"at": at} if at else {}
    summary = demo.get(f"fleet/summary?{urlencode(moment)}")
    instances = demo.get(f"instances?{urlencode(moment)}")
    moments = {summary["as_of"], instances["as_of"]}
    agents: dict[str, Document] = {}
    cursor = {"limit": str(PAGE_SIZE)}
    while True:
        page = demo.get(f"agents?{urlencode(moment | cursor)}")
        agents |= {agent["id"]: agent for agent in page["agents"]}
        moments.add(page["as_of"])
        if page["next"] is None:
            break
        cursor["cursor"] = page["next"]
    answers = Answers(summary, agents, {instance["id"]: instance for instance in instances["instances"]})
    return answers if len(moments) == 1 else None


def _without(document: Document, names: set[str]) -> Document:
    return {name: content for name, content in document.items() if name not in names}


def comparable_instances(answers: Answers) -> list[Document]:
    """Return the instances and the incidents of answers, and whether a change runs, without what changes with every
    poll. A change begins and ends between rounds.
    """
    instances = [_without(instance, INSTANCE_FIELDS_NOT_KEPT) for instance in answers.instances.values()]
    headline = answers.summary["headline"]
    return [*instances, {"incidents": headline["incidents"], "has_change": headline["state"] == "working"}]


def _headline_of(answers: Answers) -> Document:
    """Return the headline without what is not kept: the rows of incidents and changes have times of their own."""
    headline = answers.summary["headline"]
    causes = [_without(cause, {"incident"}) for cause in headline["causes"]]
    return _without(headline, HEADLINE_FIELDS_NOT_KEPT) | {"causes": causes}


def find_differences(past: Any, then: Any, path: str = "") -> Iterator[str]:
    """Yield where two answers differ. Times may differ by what rounding to milliseconds costs."""
    if isinstance(past, dict) and isinstance(then, dict):
        for name in past.keys() | then.keys():
            yield from find_differences(past.get(name), then.get(name), f"{path}.{name}")
    elif isinstance(past, list) and isinstance(then, list) and len(past) == len(then):
        for number, (past_item, item_then) in enumerate(zip(past, then, strict=True)):
            yield from find_differences(past_item, item_then, f"{path}[{number}]")
    elif past != then and not _are_equal_moments(past, then):
        yield f"{path}: the past answer has {past!r}, the answer then had {then!r}"


def _are_equal_moments(past: Any, then: Any) -> bool:
    try:
        moments = [datetime.fromisoformat(text) for text in (past, then)]
    except (TypeError, ValueError):
        return False
    return abs((moments[0] - moments[1]).total_seconds()) <= TOLERANCE_SECONDS


def find_unequal_answers(past: Answers, then: Answers) -> Iterator[str]:
    """Yield where an answer about the past differs from the answer at that time, other than by what is not kept."""
    summaries = [
        _without(answers.summary, ANSWER_FIELDS) | {"headline": _headline_of(answers)}
        for answers in (past, then)
    ]
    yield from find_differences(summaries[0], summaries[1], "summary")
    for name, not_kept in (("agents", AGENT_FIELDS_NOT_KEPT), ("instances", INSTANCE_FIELDS_NOT_KEPT)):
        documents = [
            {key: _without(document, not_kept) for key, document in getattr(answers, name).items()}
            for answers in (past, then)
        ]
        yield from find_differences(documents[0], documents[1], name)


@contextmanager
def run_guest(demo: Demo) -> Iterator[subprocess.Popen[bytes]]:
    """Run one more agent, which is killed in the end."""
    rows = json.loads(demo.fleet("ps", "--json"))
    argv = [sys.executable, "-m", "fleet.nodes", "agent", "--name-prefix", "guest", "--announce-ttl", "10s"]
    for role in ("auth", "proxy"):
        argv += [f"--{role}", ",".join(row["grpc"] for row in rows if row["role"] == role)]
    agent = children.spawn(argv, env=dict(os.environ), cwd=str(ROOT))
    try:
        yield agent
    finally:
        agent.kill()
        agent.wait()


def refloat(demo: Demo, *args: str) -> None:
    """Run a `refloat` command against the console."""
    process = subprocess.run(
        [sys.executable, "-m", "fleet.cli", *args, "--home", str(demo.home)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert process.returncode == 0, process.stderr


def record_moments(demo: Demo, *, all_faults: bool) -> list[Answers]:
    """Let the fleet fail and recover in all ways or in some; return what the API answered all the time."""

    def is_calm(answers: Answers) -> bool:
        return answers.count("healthy", "excess") == len(answers.agents)

    with Recorder(demo) as recorder:
        await_answer = recorder.await_answer
        await_answer(lambda answers: answers.count("healthy") == len(answers.agents) == AGENTS)
        demo.fleet("freeze", "proxy-1")
        await_answer(lambda answers: answers.count("stranded") > 0)
        await_answer(lambda answers: answers.count("stranded") == 0 and answers.has_instance("silent"))
        demo.fleet("resume", "proxy-1")
        await_answer(is_calm)
        if all_faults:
            demo.fleet("block-backend", "auth-1")
            await_answer(lambda answers: answers.count("at_risk", "stranded") > 0)
            await_answer(lambda answers: answers.has_instance("expired"))
            demo.fleet("unblock-backend", "auth-1")
            await_answer(is_calm)
            demo.fleet("kill", "proxy-2")
            await_answer(lambda answers: answers.has_instance("silent"))
            demo.fleet("restart", "proxy-2")
            await_answer(is_calm)
        demo.fleet("drain", "proxy-3", "--reason", "maintenance")
        await_answer(lambda answers: any(instance["drain"] for instance in answers.instances.values()))
        demo.fleet("undrain", "proxy-3")
        refloat(demo, *("reconnect", "start", "--auth", "auth-2", "--reason", "test", "--yes", "--no-wait"))
        await_answer(lambda answers: answers.count("working") > 0 or auth_count(answers, "auth-2") == 0)
        with run_guest(demo):
            await_answer(lambda answers: len(answers.agents) == AGENTS + 1 and is_calm(answers))
        await_answer(lambda answers: answers.count("offline") == 1)
        if all_faults:
            demo.fleet("block-backend", "auth-1", "auth-2")
            await_answer(lambda answers: answers.count("at_risk", "stranded") >= AGENTS // 2)
            demo.fleet("unblock-backend", "auth-1", "auth-2")
            await_answer(lambda answers: answers.count("healthy", "excess") == AGENTS)
    return recorder.answers


def auth_count(answers: Answers, name: str) -> int:
    """Return the number of agents of an auth."""
    return sum((agent["auth"] or {}).get("name") == name for agent in answers.agents.values())


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_past_answers_equal_the_answers_then(tmp_path: Path, database: str) -> None:
    """Counts, headline, every agent and every instance at all recorded moments, and nothing is left out silently.

    Faults whose causes and states are the same rows in both databases are tried on one of them.
    """
    with postgresql() if database == "postgresql" else nullcontext("") as url:
        # All answers about one round must fit into it, on a machine that does other things too.
        settings = {"REFLOAT_ROUND_INTERVAL": "2", "REFLOAT_ROUND_DEADLINE": "1.5"}
        if url:
            settings["DATABASE_URL"] = url
        shape = ("--auths", "2", "--proxies", "3", "--agents", str(AGENTS), "--announce-ttl", "30s")
        demo = start_demo(tmp_path / "demo", *shape, **settings)
        try:
            moments = record_moments(demo, all_faults=not url)
            assert len(moments) >= 10
            problems = {}
            for then in moments:
                past = read_answers(demo, then.as_of)
                assert past is not None
                if differences := [*find_unequal_answers(past, then)]:
                    problems[then.as_of] = differences
            assert not problems, json.dumps(problems, indent=1)
            assert_not_kept(moments, demo)
        finally:
            demo.stop()


def assert_not_kept(moments: Sequence[Answers], demo: Demo) -> None:
    """Fields that are not kept are empty, not those of now."""
    past = read_answers(demo, moments[0].as_of)
    assert past is not None
    for agent in past.agents.values():
        assert {agent[name] for name in AGENT_FIELDS_NOT_KEPT} == {None, "unknown"}
