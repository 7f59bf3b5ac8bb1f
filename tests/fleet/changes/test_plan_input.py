from __future__ import annotations

import pytest

from fleet.changes import NoEvidenceError
from fleet.changes.plan_input import newest_generations_of, require_evidence
from fleet.vocabulary.verdicts import State
from tests.fakes.reader import FakeReader

NOW = 1_700_000_000.0


def test_plan_without_current_data_is_refused() -> None:
    """No poll, an old poll, or only unknown agents."""
    for table, text in (
        (FakeReader(as_of=None).table("default", NOW), "no poller has completed a round"),
        (FakeReader(as_of=NOW - 60).table("default", NOW), "polling has stopped"),
        (
            FakeReader(as_of=NOW, states=[State.UNKNOWN] * 2).table("default", NOW),
            "the state of every agent is unknown",
        ),
    ):
        with pytest.raises(NoEvidenceError, match=text):
            require_evidence(table)


def test_newest_generation_per_group() -> None:
    """Of the proxies that have not expired."""
    views = FakeReader(as_of=NOW).table("default", NOW).instances.values()
    assert newest_generations_of(views) == {view.facts.group: view.facts.generation for view in views}
