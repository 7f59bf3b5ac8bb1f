"""Connection tests in threads, with their reports in a real Redis."""

from __future__ import annotations

from dataclasses import replace

import pytest
from redis import Redis

from fleet.clusters.background_tests import BackgroundTests
from fleet.clusters.test_report import StepVerdict
from fleet.clusters.test_store import ConnectionTestStore
from fleet.source_plugins.refloat import SOURCE as REFLOAT
from fleet.vocabulary.clusters import AddressKind
from tests.fakes.instances import FakeAuth
from tests.fakes.waiting import DEADLINE


@pytest.fixture
def store(redis: Redis, prefix: str) -> ConnectionTestStore:
    """The reports of this test."""
    return ConnectionTestStore(redis, prefix)


def _run(store: ConnectionTestStore, test_id: str, *entries: str) -> bool:
    """Run a test to its end; return whether it was started."""
    thread = BackgroundTests(store, lambda: 7.0).start("default", test_id, AddressKind.STATIC, entries, None)
    if thread is None:
        return False
    thread.join(DEADLINE)
    assert not thread.is_alive()
    return True


def test_a_requested_test_is_run_once(store: ConnectionTestStore, auth: FakeAuth) -> None:
    """Every step is in its report; a second delivery of its task starts nothing."""
    report = store.create("default", 5.0)

    assert _run(store, report.test_id, auth.address)

    finished_report = store.read("default")
    assert finished_report is not None
    assert (finished_report.started_at, finished_report.ended_at) == (7.0, 7.0)
    assert [step.name for step in finished_report.steps] == list(REFLOAT.test_steps)
    assert finished_report.steps[1].verdict is StepVerdict.OK
    assert not _run(store, report.test_id, auth.address)


def test_a_test_without_a_request_is_not_run(store: ConnectionTestStore) -> None:
    """Its cluster was removed, or a newer test was requested; nothing is written."""
    assert not _run(store, "none")
    old_report = store.create("default", 5.0)
    new_report = store.create("default", 6.0)

    assert not _run(store, old_report.test_id)
    assert store.read("default") == new_report


def test_a_newer_request_ends_a_running_test(store: ConnectionTestStore) -> None:
    """The old report keeps the steps that it had."""
    old_report = store.create("default", 5.0)

    class NewerRequest(ConnectionTestStore):
        """A store in which a newer test is requested after the first step."""

        def write(self, report):  # type: ignore[no-untyped-def, override]
            if len(report.steps) == 1:
                store.create("default", 6.0)
            return super().write(report)

    _run(NewerRequest(store._redis, store._prefix), old_report.test_id)

    ended_report = store.read("default", old_report.test_id)
    assert ended_report is not None
    assert len(ended_report.steps) == 1
    assert ended_report == replace(old_report, started_at=7.0, ended_at=7.0, steps=ended_report.steps)
