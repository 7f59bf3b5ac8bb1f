"""Evidence of what the running system produced: docs/reference/tests.md, "Producers".

A flow test that makes something happen ends with a line such as

    produced(Database(demo.home), verdicts=("retired",), reasons=("none",))

The line fails unless the system under test has left evidence of each member. `tests/meta/test_producers.py` reads these
lines and fails for every member of a vocabulary (`tests/meta/vocabularies.py`) that no flow test produces. So what a
test wrote itself is no evidence, and neither is what is not of the system that runs.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from fleet.models.history import BACKEND_CAUSE_KEY, NO_CAUSE_KEY
from fleet.monitoring.state import StateError
from fleet.monitoring.state.reader import Reader
from fleet.vocabulary.actions import RequestOrigin
from fleet.vocabulary.changes import ChangeKind
from fleet.vocabulary.verdicts import Reason, Recovery, State
from tests.fakes.waiting import eventually_sync

#: Seconds for a system that runs on a machine that does other things too.
PATIENCE = 180.0

#: Of a vocabulary, by its name, the members that there is evidence of.
Source = Callable[[str], Iterable[str]]

#: What the console keeps for good.
_QUERIES = {
    "verdicts": "select distinct new from fleet_agentchange",
    "reasons": "select distinct reason from fleet_agentchange",
    "recoveries": "select distinct recovery from fleet_agentchange",
    "causes": f"""
        select distinct case c.cause when {BACKEND_CAUSE_KEY} then 'backend' else i.kind end from fleet_agentchange c
        left join fleet_instance i on i.id = c.cause where c.cause != {NO_CAUSE_KEY}
    """,
    "instance_states": "select distinct new from fleet_instancechange",
    "incident_causes": "select distinct cause_kind from fleet_incident where fired_at is not null",
    "timeline": "select distinct kind from fleet_incidentevent",
    "actions": "select distinct action from fleet_auditentry",
    "change_kinds": "select distinct kind from fleet_change",
    "change_words": "select distinct action from fleet_auditentry",
}
#: Vocabularies whose members the history names by number.
_NUMBERED_VOCABULARIES: dict[str, Callable[[int], State | Reason | Recovery]] = {
    "verdicts": State,
    "reasons": Reason,
    "recoveries": Recovery,
}


def produced(source: Source, /, *, seconds: float = PATIENCE, **claims: Sequence[str]) -> None:
    """Wait until there is evidence of every member of the named vocabularies; fail with those that are missing.

    Write the members as tuples of literals, in the body of the test: the meta-test reads them.
    """
    absent: dict[str, list[str]] = {}

    def all_there() -> bool:
        absent.clear()
        for vocabulary, members in claims.items():
            evidence = set(source(vocabulary))
            if unseen := [member for member in members if member not in evidence]:
                absent[vocabulary] = unseen
        return not absent

    try:
        eventually_sync(all_there, seconds=seconds)
    except AssertionError:
        raise AssertionError(f"the running system has not produced {absent}") from None


class Database:
    """What the console with its state in `home` keeps in its database: history, incidents and the log."""

    def __init__(self, home: Path) -> None:
        self._path = home / "refloat.sqlite3"

    def __call__(self, vocabulary: str) -> Iterator[str]:
        """Yield the members of a vocabulary that rows name."""
        with closing(sqlite3.connect(self._path, timeout=60)) as database:
            rows = database.execute(_QUERIES[vocabulary]).fetchall()
        for (slug,) in rows:
            # The history has the numbers of verdicts, reasons and recoveries.
            numbered_words = _NUMBERED_VOCABULARIES.get(vocabulary)
            yield from _words_of(vocabulary, slug if numbered_words is None else numbered_words(slug).slug)


class Record:
    """What the newest round made of the agents and instances of the default cluster: what pages show now."""

    def __init__(self, reader: Reader, now: Callable[[], float]) -> None:
        self._reader = reader
        self._now = now

    def __call__(self, vocabulary: str) -> Iterator[str]:
        """Yield what holds of some agent, or of some instance."""
        try:
            table = self._reader.table("default", self._now())
        except StateError:
            return
        if vocabulary == "instance_states":
            yield from (view.state.slug for view in table.instances.values())
            return
        kinds = {view.facts.id: str(view.facts.kind) for view in table.instances.values()}
        for view in self._reader.agents(table, range(len(table.ids))):
            verdict = view.verdict
            cause = kinds.get(verdict.cause, verdict.cause.partition("/")[0])
            yield {
                "verdicts": verdict.state.slug,
                "reasons": verdict.reason.slug,
                "recoveries": verdict.recovery.slug,
                "causes": cause,
            }[vocabulary]


class Answers:
    """The API's responses on agents and instances; `get` returns the JSON of a path under `/api/v1/`."""

    _KEYS = MappingProxyType({"verdicts": "state", "reasons": "reason", "recoveries": "recovery"})

    def __init__(self, get: Callable[[str], Any]) -> None:
        self._get = get

    def __call__(self, vocabulary: str) -> Iterator[str]:
        """Yield the response on every agent and every instance."""
        if vocabulary == "instance_states":
            yield from (str(instance["state"]) for instance in self._get("instances")["instances"])
            return
        yield from (str(agent[self._KEYS[vocabulary]]) for agent in self._get("agents?limit=200")["agents"])


class Frames:
    """What sockets of the live link received, as text; bytes are left out. It may still grow."""

    def __init__(self, frames: Iterable[str | bytes]) -> None:
        self._frames = frames

    def __call__(self, vocabulary: str) -> Iterator[str]:
        """Yield the types of the frames."""
        assert vocabulary == "events", vocabulary
        yield from (json.loads(frame)["type"] for frame in self._frames if isinstance(frame, str))


class Pages:
    """Texts of `/metrics`. A metric that has never been more than zero counts nothing that happened."""

    def __init__(self, texts: Callable[[], Iterable[str]]) -> None:
        self._texts = texts

    def __call__(self, vocabulary: str) -> Iterator[str]:
        """Yield the metrics with a value."""
        assert vocabulary == "metrics", vocabulary
        for text in self._texts():
            for family in text_string_to_metric_families(text):
                if any(sample.value for sample in family.samples):
                    yield family.name


def _words_of(vocabulary: str, slug: str) -> Iterator[str]:
    """Yield the member that a word of the database stands for; actions are made of several."""
    first, _, last = slug.partition(".")
    if vocabulary == "actions":
        yield first if first in set(RequestOrigin) else slug
    elif vocabulary in ("change_kinds", "change_words"):
        if first in set(ChangeKind):
            yield first if vocabulary == "change_kinds" else last
    else:
        yield slug
