from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from fleet.monitoring.pollers.watch_changes import unpack_changes
from fleet.monitoring.pollers.watch_holder import WatchHolder
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.changes import complete_list
from fleet.monitoring.sources.presence import AgentChanges, ListedAgent
from fleet.monitoring.sources.source import SourceContext
from fleet.monitoring.state.watch_leases import WatchLease, WatchLeases
from fleet.monitoring.state.writer import Writer
from fleet.vocabulary.capabilities import Capability
from tests.fakes.waiting import eventually_sync

CLUSTER, TOKEN = "teleport", "token"
ADDRESS = "auth-1:3025"
ROUND_INTERVAL = 1.0


class ScriptedWatch:
    """A watch with the changes that a test adds; an exception among them is raised."""

    def __init__(self) -> None:
        self.script: list[dict[str, ListedAgent | None] | Exception] = []
        self.missing_capabilities: Mapping[Capability, str] = {}
        self.closed = threading.Event()

    async def read_list(self, context: SourceContext) -> AgentChanges:
        """Return nothing: holders do not list."""
        return complete_list({}, context.addresses)

    def take_changes(self, seconds: float) -> dict[str, ListedAgent | None]:
        """Return the next changes."""
        assert seconds > 0
        changes = self.script.pop(0) if self.script else {}
        if isinstance(changes, Exception):
            raise changes
        return changes

    def close(self) -> None:
        """Note that it was closed."""
        self.closed.set()


@pytest.fixture
def leases(writer: Writer) -> WatchLeases:
    """Leases with one of the cluster."""
    leases = WatchLeases(writer.redis, writer.prefix)
    assert leases.take(CLUSTER, TOKEN, "", 60.0)
    return leases


def start(leases: WatchLeases, watch: ScriptedWatch) -> WatchHolder:
    holder = WatchHolder(leases, CLUSTER, TOKEN, watch, ADDRESS, ROUND_INTERVAL)
    holder.start()
    return holder


def read(leases: WatchLeases) -> WatchLease | None:
    return leases.read(CLUSTER, TOKEN, 0)


def test_changes_wait_for_the_rounds(leases: WatchLeases) -> None:
    """With their revisions; a renewal without changes adds none. Stopping ends the lease."""
    watch = ScriptedWatch()
    watch.script = [{"host-1": None}, {}, {"host-2": None}]
    watch.missing_capabilities = {Capability.AGENT_TO_AUTH: "The role lacks a verb."}
    holder = start(leases, watch)
    lease = read(leases)
    assert lease is not None
    assert lease == WatchLease(TOKEN, True, ADDRESS, watch.missing_capabilities)
    eventually_sync(lambda: (lease := read(leases)) is not None and list(lease.changes) == [1, 2])
    lease = read(leases)
    assert lease is not None
    assert unpack_changes(lease.changes.values()) == {"host-1": None, "host-2": None}
    holder.stop()
    assert watch.closed.is_set()
    assert read(leases) is None


@pytest.mark.parametrize("error", [SourceError("it ended", has_response=True), KeyError("of a plug-in")])
def test_lost_watch_ends_the_lease(leases: WatchLeases, error: Exception) -> None:
    """At once, so that the next round opens another one."""
    watch = ScriptedWatch()
    watch.script = [error]
    start(leases, watch)
    eventually_sync(lambda: read(leases) is None)
    assert watch.closed.is_set()


def test_holder_without_its_lease_ends(leases: WatchLeases) -> None:
    """Another worker took it: the lease of that worker stays."""
    watch = ScriptedWatch()
    start(leases, watch)
    assert leases.take(CLUSTER, "another", TOKEN, 60.0)
    assert watch.closed.wait(60.0)
    lease = read(leases)
    assert lease is not None
    assert lease.token == "another"


def test_holder_whose_list_was_recorded_too_late_closes(leases: WatchLeases) -> None:
    watch = ScriptedWatch()
    leases.release(CLUSTER, TOKEN)
    start(leases, watch)
    assert watch.closed.is_set()


def test_watch_without_rounds_ends(leases: WatchLeases) -> None:
    """Its cluster was paused or removed: nobody takes the changes."""
    watch = ScriptedWatch()
    for revision in range(1, 65):
        leases.renew(CLUSTER, TOKEN, ADDRESS, 60.0, {}, revision, b"{}")
    watch.script = [{}]
    holder = start(leases, watch)
    assert not watch.closed.is_set()
    leases.renew(CLUSTER, TOKEN, ADDRESS, 60.0, {}, 65, b"{}")
    assert watch.closed.wait(60.0)
    holder.stop()
