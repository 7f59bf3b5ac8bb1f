"""The nodes' backend against a real Valkey."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
import redis.asyncio as redis
import uvloop

from fleet.nodes.local.forward_names import ForwardMode
from fleet.transport import backend as backend_module
from fleet.transport.backend import (
    AgentPage,
    Backend,
    BackendTimeoutError,
    BackendUnavailableError,
    UnreadableResourceError,
)
from fleet.wire import fleet_pb2, types_pb2
from tests.fakes.forwarded import forwarded
from tests.fakes.waiting import eventually
from tests.fleet.conftest import HASTY


@pytest.fixture
async def backend(valkey_url: str, prefix: str) -> AsyncIterator[Backend]:
    made = Backend(valkey_url, "default", prefix=prefix)
    yield made
    await made.close()


def server(name: str) -> types_pb2.ServerV2:
    return types_pb2.ServerV2(kind="proxy", metadata=types_pb2.Metadata(name=name))


def agent(name: str, ttl_ms: int = 60_000) -> fleet_pb2.AgentResource:
    return fleet_pb2.AgentResource(agent_id=name, name=name, ttl_ms=ttl_ms)


async def names(backend: Backend) -> list[str]:
    return [found.metadata.name for found in await backend.instances("proxy")]


async def test_instances_expire(backend: Backend) -> None:
    """An instance is listed until its TTL has passed since its last heartbeat; kinds are apart."""
    await backend.put_instance("proxy", server("b"), 60.0)
    await backend.put_instance("proxy", server("a"), 60.0)
    await backend.put_instance("auth", server("c"), 60.0)
    assert await names(backend) == ["a", "b"]
    await backend.put_instance("proxy", server("a"), 0.05)

    async def expired() -> bool:
        return await names(backend) == ["b"]

    await eventually(expired)


async def test_instances_deleted(backend: Backend) -> None:
    """A deleted instance is gone at once."""
    await backend.put_instance("proxy", server("a"), 60.0)
    await backend.delete_instance("proxy", "a")
    assert await names(backend) == []


class Reader:
    """What a poller knows after applying answers."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.place = ("", 0)
        self.known: dict[str, tuple[str, float]] = {}
        self.fulls = 0

    async def read(self, limit: int = 2) -> set[str]:
        while True:
            page: AgentPage = await self._backend.agents(*self.place, limit)
            if page.full:
                self.known.clear()
                self.fulls += 1
            for name in page.removed_ids:
                self.known.pop(name, None)
            now = time.monotonic()
            for entry in page.agents:
                self.known[entry.agent.agent_id] = (entry.auth_id, now + entry.expires_in_ms / 1000)
            self.place = (page.epoch, page.revision)
            if not page.more:
                return {name for name, (_, expires_at) in self.known.items() if expires_at > now}


async def test_agents_law(backend: Backend) -> None:
    """After opens, heartbeats, removals and expiry, the old list with answers applied is the full list."""
    follower = Reader(backend)
    for number in range(7):
        await backend.put_agent(agent(f"a{number}"), "auth-1")
    await backend.put_agent(agent("brief", ttl_ms=60), "auth-1")
    await follower.read()
    await backend.put_agent(agent("a3"), "auth-2")
    await backend.delete_agent("a5")
    await backend.delete_agent("never-there")
    await backend.put_agent(agent("a9"), "auth-1")
    await backend.delete_agent("a6")
    await backend.put_agent(agent("a6"), "auth-1")
    wanted = {"a0", "a1", "a2", "a3", "a4", "a6", "a9"}

    async def followed() -> bool:
        return await follower.read() == wanted

    await eventually(followed)
    assert follower.fulls == 1
    assert follower.known["a3"][0] == "auth-2"
    fresh = Reader(backend)
    assert await fresh.read(limit=1000) == wanted
    assert fresh.fulls == 1
    # The expired agent is forgotten by the next heartbeat, so the index cannot grow.
    await backend.put_agent(agent("a0"), "auth-1")
    assert len(backend._agent_keys("by-revision")) == 1
    assert await backend._redis.zcard(backend._key("agents", "by-revision")) == 7


async def test_agents_another_backend_serves_the_same_feed(
    backend: Backend, valkey_url: str, prefix: str
) -> None:
    """A poller may change auths: epoch and revision live in the backend."""
    other = Backend(valkey_url, "default", prefix=prefix)
    await backend.put_agent(agent("a"), "auth-1")
    first = await backend.agents("", 0, 0)
    await other.put_agent(agent("b"), "auth-2")
    second = await other.agents(first.epoch, first.revision, 0)
    assert (first.full, second.full) == (True, False)
    assert [entry.agent.agent_id for entry in second.agents] == ["b"]
    await other.close()


async def test_agents_epoch_lost(backend: Backend) -> None:
    """The backend lost its data: another epoch, and the full list."""
    await backend.put_agent(agent("a"), "auth-1")
    first = await backend.agents("", 0, 0)
    for key in await backend._redis.keys(f"{backend._space}:*"):
        await backend._redis.delete(key)
    await backend.put_agent(agent("b"), "auth-1")
    second = await backend.agents(first.epoch, first.revision, 0)
    assert second.epoch != first.epoch
    assert second.full
    assert [entry.agent.agent_id for entry in second.agents] == ["b"]


async def test_agents_removals_forgotten(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who missed more removals than are remembered gets the full list."""
    monkeypatch.setattr(backend_module, "_REMOVALS", 1)
    for name in "abc":
        await backend.put_agent(agent(name), "auth-1")
    place = await backend.agents("", 0, 0)
    await backend.delete_agent("a")
    middle = await backend.agents(place.epoch, place.revision, 0)
    assert (middle.full, middle.removed_ids) == (False, ("a",))
    await backend.delete_agent("b")
    assert (await backend.agents(place.epoch, place.revision, 0)).full
    assert not (await backend.agents(place.epoch, middle.revision, 0)).full


@pytest.fixture
def deaf() -> Iterator[int]:
    """A port where connections are taken and nothing is ever answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


async def test_backend_deaf(deaf: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that answers nothing fails every call within its time, also forty at once."""
    assert HASTY < 1.0
    monkeypatch.setattr(backend_module, "TIMEOUT", HASTY)
    backend = Backend(f"redis://:secret@127.0.0.1:{deaf}/0", "default")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(HASTY)
            turns += 1

    counting = asyncio.create_task(count_turns())
    results = await asyncio.gather(
        *(backend.put_agent(agent("a"), "x") for _ in range(40)), return_exceptions=True
    )
    counting.cancel()
    assert turns < 20, "one after the other they take forty"
    assert all(isinstance(result, BackendUnavailableError) for result in results)
    assert "did not answer in time" in str(results[0])
    assert "secret" not in str(results[0])
    await backend.close()


@pytest.mark.parametrize("milliseconds", [2, 5, 10, 15, 20, 30])
async def test_time_that_is_over_while_connections_are_made(
    deaf: int, monkeypatch: pytest.MonkeyPatch, milliseconds: int
) -> None:
    """Whatever a call is at when its time is over, it ends: the longest of forty waits no longer than the others."""
    monkeypatch.setattr(backend_module, "TIMEOUT", milliseconds / 1000)
    backend = Backend(f"redis://:secret@127.0.0.1:{deaf}/0", "default")
    calls = [asyncio.create_task(backend.put_agent(agent("a"), "x")) for _ in range(40)]
    await asyncio.wait(calls, timeout=10)
    assert [call for call in calls if not call.done()] == []
    assert all(isinstance(call.exception(), BackendUnavailableError) for call in calls)
    await backend.close()


async def test_backend_refused(deaf: int) -> None:
    """A refused connection fails at once, and the next call after recovery works by itself."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    backend = Backend(f"redis://127.0.0.1:{port}/0", "default")
    with pytest.raises(BackendUnavailableError, match="cannot be used"):
        await backend.instances("auth")
    await backend.close()


async def test_backend_recovers(valkey_url: str, prefix: str) -> None:
    """Connections that were cut are made anew: one failed call is forgiven, not for ever remembered."""
    backend = Backend(valkey_url, "default", prefix=prefix)
    await backend.put_agent(agent("a"), "x")
    async with redis.Redis.from_url(valkey_url) as admin:
        await admin.client_kill_filter(_type="normal", skipme=True)

    async def written() -> bool:
        try:
            await backend.put_agent(agent("a"), "x")
        except BackendUnavailableError:
            return False
        return True

    await eventually(written)
    await backend.close()


def test_backend_url_wrong() -> None:
    """What is no redis URL is refused before anything starts."""
    with pytest.raises(ValueError, match="scheme"):
        Backend("http://x", "default")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_reset_in_flight_is_unavailable_at_once(
    run: Callable[[Coroutine[Any, Any, None]], None], valkey_url: str, prefix: str
) -> None:
    """Connections reset under calls that wait: every call is done or fails by the reset, none by its timeout."""

    async def scene() -> None:
        async with forwarded(valkey_url, prefix) as (forward, backend):
            for _ in range(10):
                calls = [
                    asyncio.ensure_future(backend.put_instance("proxy", server("a"), 60.0)) for _ in range(60)
                ]
                await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                await forward.change(mode=ForwardMode.CUT)
                ended = await asyncio.gather(*calls, return_exceptions=True)
                assert all(error is None or isinstance(error, BackendUnavailableError) for error in ended)
                assert not any(isinstance(error, BackendTimeoutError) for error in ended)
                await forward.change(mode=ForwardMode.PASS)

    run(scene())


def networking(revision: str) -> types_pb2.ClusterNetworkingConfigV2:
    return types_pb2.ClusterNetworkingConfigV2(metadata={"revision": revision})


async def test_networking_config_by_condition(backend: Backend) -> None:
    """Written only where nothing is, only over the revision named, or over everything."""
    assert await backend.networking_config() is None
    assert not await backend.put_networking_config(networking("1"), "is", "0")
    assert await backend.put_networking_config(networking("1"), "absent")
    assert not await backend.put_networking_config(networking("2"), "absent")
    assert not await backend.put_networking_config(networking("2"), "is", "")
    assert await backend.put_networking_config(networking("2"), "is", "1")
    assert await backend.networking_config() == networking("2")
    assert await backend.put_networking_config(networking("3"))
    assert await backend.networking_config() == networking("3")


async def test_what_cannot_be_read_hides_nothing_else(valkey_url: str, prefix: str) -> None:
    """A damaged resource is left out and named; a damaged networking config is an error of its own."""
    said: list[str] = []
    backend = Backend(valkey_url, "default", prefix=prefix, on_unreadable=lambda name, why: said.append(name))
    await backend.put_instance("proxy", server("a"), 60.0)
    await backend.put_instance("proxy", server("b"), 60.0)
    await backend.put_agent(agent("c"), "auth-1")
    await backend.put_agent(agent("d"), "auth-1")
    await backend.put_networking_config(types_pb2.ClusterNetworkingConfigV2())
    async with redis.Redis.from_url(valkey_url) as raw:
        for key in ("proxy:a", "agent:c"):
            await raw.set(f"{prefix}:default:{key}", b"\xff\xff", keepttl=True)
        await raw.hset(f"{prefix}:default:networking-config", "body", b"\xff\xff")
    assert await names(backend) == ["b"]
    page = await backend.agents("", 0, 0)
    assert [entry.agent.agent_id for entry in page.agents] == ["d"]
    assert await backend.agent("c") is None
    assert said == ["proxy a", "an agent", "agent c"]
    with pytest.raises(UnreadableResourceError, match="cannot read the networking config"):
        await backend.networking_config()
    await backend.close()


async def test_agents_that_are_long_come_in_more_pages(backend: Backend) -> None:
    """No answer is longer than gRPC takes by default, nobody is left out, and one that is longer comes alone."""
    sizes = [100_000] * 50 + [3_000_000] + [10] * 5
    for number, size in enumerate(sizes):
        resource = agent(f"a{number}")
        resource.labels["x"] = "y" * size
        await backend.put_agent(resource, "auth-1")
    seen: list[str] = []
    revision, pages = 0, 0
    page = await backend.agents("", 0, 0)
    while True:
        entries = [entry.ByteSize() for entry in page.agents]
        assert sum(entries) < 2_200_000 or len(entries) == 1
        seen += [entry.agent.agent_id for entry in page.agents]
        assert page.revision > revision
        revision, pages = page.revision, pages + 1
        if not page.more:
            break
        page = await backend.agents(page.epoch, page.revision, 0)
    assert seen == [f"a{number}" for number in range(len(sizes))]
    assert 4 <= pages <= 6
