from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.presence import ListedAgent
from fleet.monitoring.sources.teleport.watch import TeleportWatch, open_watch
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.capabilities import Capability
from tests.fakes.source_contexts import make_source_context
from tests.fakes.teleport_auth import FakeTeleportAuth, delete_event, make_node, put_event
from tests.fakes.waiting import eventually_sync

SECONDS = 30.0


@pytest.fixture
async def watch(teleport_auth: FakeTeleportAuth, connections: Connections) -> AsyncIterator[TeleportWatch]:
    """A watch of an auth with two hosts, whose list was read."""
    teleport_auth.resources = {"node": [make_node("host-1"), make_node("host-2")]}
    teleport_auth.inventory = {"host-1": "auth-1", "host-2": "auth-1"}
    context = make_source_context(connections, teleport_auth)
    agent_watch = await open_watch(context)
    assert agent_watch is not None
    changes = await agent_watch.read_list(context)
    assert (changes.full, changes.complete, sorted(changes.agents)) == (True, True, ["host-1", "host-2"])
    yield agent_watch
    agent_watch.close()


def take_until(watch: TeleportWatch, host: str) -> dict[str, ListedAgent | None]:
    """Take changes until there is one of a host."""
    changes: dict[str, ListedAgent | None] = {}

    def has_host() -> bool:
        changes.update(watch.take_changes(SECONDS))
        return host in changes

    eventually_sync(has_host)
    return changes


async def test_changes_after_the_list(teleport_auth: FakeTeleportAuth, watch: TeleportWatch) -> None:
    teleport_auth.send(put_event(make_node("host-1", expires_at=900)), delete_event("node", "host-2"))
    changes = take_until(watch, "host-2")
    agent = changes["host-1"]
    assert agent is not None
    assert (agent.expires_at, agent.auth_id, changes["host-2"]) == (900.0, "auth-1", None)
    assert watch.missing_capabilities == {}


async def test_changes_while_the_list_is_read_are_kept(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    """The watch begins before the list: what the list may have missed comes as an event."""
    context = make_source_context(connections, teleport_auth)
    agent_watch = await open_watch(context)
    assert agent_watch is not None
    teleport_auth.send(put_event(make_node("host-9")))
    assert not (await agent_watch.read_list(context)).agents
    assert take_until(agent_watch, "host-9")["host-9"]
    agent_watch.close()
    eventually_sync(lambda: teleport_auth.watch_count == 0)


async def test_lost_watch_is_an_error(teleport_auth: FakeTeleportAuth, watch: TeleportWatch) -> None:
    teleport_auth.end_watches()
    with pytest.raises(SourceError, match="watcher is closed"):
        take_until(watch, "host-1")


async def test_silent_auth_is_an_error(teleport_auth: FakeTeleportAuth, watch: TeleportWatch) -> None:
    teleport_auth.freeze_event.set()
    with pytest.raises(SourceError, match="deadline exceeded"):
        watch.take_changes(0.2)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "The role of Refloat's identity lacks the verb read"),
        (grpc.StatusCode.UNIMPLEMENTED, "This version of Teleport does not have changes of its resources"),
    ],
)
async def test_refused_watch_is_a_missing_capability(
    teleport_auth: FakeTeleportAuth, connections: Connections, code: grpc.StatusCode, reason: str
) -> None:
    teleport_auth.refusals = {"WatchEvents": code}
    context = make_source_context(connections, teleport_auth)
    assert await open_watch(context) is None
    assert context.missing_capabilities[Capability.WATCH].startswith(reason)


async def test_failing_auth_opens_no_watch(teleport_auth: FakeTeleportAuth, connections: Connections) -> None:
    teleport_auth.refusals = {"WatchEvents": grpc.StatusCode.UNAVAILABLE}
    with pytest.raises(SourceError, match="unavailable"):
        await open_watch(make_source_context(connections, teleport_auth))


async def test_kinds_that_are_refused_everywhere_do_not_matter(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    """The role may neither list nor watch them; of kinds that are only listed, changes would be missed."""
    teleport_auth.refusals = {"db_server": grpc.StatusCode.PERMISSION_DENIED}
    context = make_source_context(connections, teleport_auth)
    agent_watch = await open_watch(context)
    assert agent_watch is not None
    await agent_watch.read_list(context)
    assert Capability.WATCH not in context.missing_capabilities
    teleport_auth.refusals, teleport_auth.unwatched_kinds = {}, {"db_server"}
    partial_watch = await open_watch(context)
    assert partial_watch is not None
    await partial_watch.read_list(context)
    assert context.missing_capabilities[Capability.WATCH].endswith("watch, the kinds db_server.")
    agent_watch.close()
    partial_watch.close()


async def test_findings_of_other_lists_do_not_last(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    """Only what the watch found is repeated in later rounds."""
    context = make_source_context(connections, teleport_auth)
    context.missing_capabilities[Capability.INSTANCES] = "The role lacks a verb."
    teleport_auth.refusals = {"GetInstances": grpc.StatusCode.PERMISSION_DENIED}
    agent_watch = await open_watch(context)
    assert agent_watch is not None
    await agent_watch.read_list(context)
    assert list(agent_watch.missing_capabilities) == [Capability.AGENT_TO_AUTH]
    assert Capability.AGENT_TO_AUTH in context.missing_capabilities
    agent_watch.close()


async def test_inventory_is_read_again_and_the_watch_ends(
    teleport_auth: FakeTeleportAuth, connections: Connections
) -> None:
    """The inventory about once a minute, sooner after a new host; the watch is opened again after 10 min."""
    now = 1000.0
    context = make_source_context(connections, teleport_auth)
    template = await open_watch(context)
    assert template is not None
    watch = TeleportWatch(template._stream, template._kinds, context.clock, lambda: now)
    teleport_auth.resources = {"node": [make_node("host-1")]}
    await watch.read_list(context)
    teleport_auth.inventory = {"host-1": "auth-1"}
    assert watch.take_changes(SECONDS) == {}
    now += 60.0
    agent = take_until(watch, "host-1")["host-1"]
    assert agent is not None
    assert agent.auth_id == "auth-1"
    teleport_auth.inventory["host-2"] = "auth-2"
    teleport_auth.send(put_event(make_node("host-2")))
    assert take_until(watch, "host-2")["host-2"]
    now += 20.0
    new_agent = take_until(watch, "host-2")["host-2"]
    assert new_agent is not None
    assert new_agent.auth_id == "auth-2"
    now += 660.0
    with pytest.raises(SourceError, match="time for a new one"):
        watch.take_changes(SECONDS)
    watch.close()
