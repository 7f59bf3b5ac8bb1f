"""The backend of auths and proxies on a real Valkey."""

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
from tests.fakes.forwarded import forwarded_backend
from tests.fakes.waiting import eventually
from tests.fleet.conftest import HASTY


@pytest.fixture
async def backend(valkey_url: str, prefix: str) -> AsyncIterator[Backend]:
    backend_client = Backend(valkey_url, "default", prefix=prefix)
    yield backend_client
    await backend_client.close()


def server(name: str) -> types_pb2.ServerV2:
    return types_pb2.ServerV2(kind="proxy", metadata=types_pb2.Metadata(name=name))


def agent(name: str, ttl_ms: int = 60_000) -> fleet_pb2.AgentResource:
    return fleet_pb2.AgentResource(agent_id=name, name=name, ttl_ms=ttl_ms)


async def proxy_names(backend: Backend) -> list[str]:
    return [instance.metadata.name for instance in await backend.list_instances("proxy")]


async def test_instance_expires_after_its_ttl(backend: Backend) -> None:
    """Instances of other kinds are not listed."""
    await backend.put_instance("proxy", server("b"), 60.0)
    await backend.put_instance("proxy", server("a"), 60.0)
    await backend.put_instance("auth", server("c"), 60.0)
    assert await proxy_names(backend) == ["a", "b"]
    await backend.put_instance("proxy", server("a"), 0.05)

    async def is_expired() -> bool:
        return await proxy_names(backend) == ["b"]

    await eventually(is_expired)


async def test_deleted_instance_is_not_listed(backend: Backend) -> None:
    await backend.put_instance("proxy", server("a"), 60.0)
    await backend.delete_instance("proxy", "a")
    assert await proxy_names(backend) == []


class FeedReader:
    """A poller that applies the pages of the agents."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.position = ("", 0)
        self.entries: dict[str, tuple[str, float]] = {}
        self.full_page_count = 0

    async def read(self, limit: int = 2) -> set[str]:
        while True:
            page: AgentPage = await self._backend.list_agents(*self.position, limit)
            if page.full:
                self.entries.clear()
                self.full_page_count += 1
            for name in page.removed_ids:
                self.entries.pop(name, None)
            now = time.monotonic()
            for entry in page.agents:
                self.entries[entry.agent.agent_id] = (entry.auth_id, now + entry.expires_in_ms / 1000)
            self.position = (page.epoch, page.revision)
            if not page.more:
                return {name for name, (_, expires_at) in self.entries.items() if expires_at > now}


async def test_agents_feed_equals_the_full_list(backend: Backend) -> None:
    """After inserts, heartbeats, removals and expiry the applied pages give the full list."""
    reader = FeedReader(backend)
    for number in range(7):
        await backend.put_agent(agent(f"a{number}"), "auth-1")
    await backend.put_agent(agent("brief", ttl_ms=60), "auth-1")
    await reader.read()
    await backend.put_agent(agent("a3"), "auth-2")
    await backend.delete_agent("a5")
    await backend.delete_agent("never-there")
    await backend.put_agent(agent("a9"), "auth-1")
    await backend.delete_agent("a6")
    await backend.put_agent(agent("a6"), "auth-1")
    expected = {"a0", "a1", "a2", "a3", "a4", "a6", "a9"}

    async def is_up_to_date() -> bool:
        return await reader.read() == expected

    await eventually(is_up_to_date)
    assert reader.full_page_count == 1
    assert reader.entries["a3"][0] == "auth-2"
    new_reader = FeedReader(backend)
    assert await new_reader.read(limit=1000) == expected
    assert new_reader.full_page_count == 1
    # The next heartbeat removes the expired agent, so the index cannot grow.
    await backend.put_agent(agent("a0"), "auth-1")
    assert len(backend._agent_keys("by-revision")) == 1
    assert await backend._redis.zcard(backend._key("agents", "by-revision")) == 7


async def test_agents_feed_is_the_same_for_every_auth(backend: Backend, valkey_url: str, prefix: str) -> None:
    """A poller may change auths: epoch and revision are in the backend."""
    other_backend = Backend(valkey_url, "default", prefix=prefix)
    await backend.put_agent(agent("a"), "auth-1")
    first = await backend.list_agents("", 0, 0)
    await other_backend.put_agent(agent("b"), "auth-2")
    second = await other_backend.list_agents(first.epoch, first.revision, 0)
    assert (first.full, second.full) == (True, False)
    assert [entry.agent.agent_id for entry in second.agents] == ["b"]
    await other_backend.close()


async def test_agents_feed_is_full_after_data_loss(backend: Backend) -> None:
    """The epoch is another one."""
    await backend.put_agent(agent("a"), "auth-1")
    first = await backend.list_agents("", 0, 0)
    for key in await backend._redis.keys(f"{backend._key_prefix}:*"):
        await backend._redis.delete(key)
    await backend.put_agent(agent("b"), "auth-1")
    second = await backend.list_agents(first.epoch, first.revision, 0)
    assert second.epoch != first.epoch
    assert second.full
    assert [entry.agent.agent_id for entry in second.agents] == ["b"]


async def test_agents_feed_is_full_after_too_many_removals(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a limited number of removals is kept."""
    monkeypatch.setattr(backend_module, "_MOST_REMOVED_IDS", 1)
    for name in "abc":
        await backend.put_agent(agent(name), "auth-1")
    first_page = await backend.list_agents("", 0, 0)
    await backend.delete_agent("a")
    second_page = await backend.list_agents(first_page.epoch, first_page.revision, 0)
    assert (second_page.full, second_page.removed_ids) == (False, ("a",))
    await backend.delete_agent("b")
    assert (await backend.list_agents(first_page.epoch, first_page.revision, 0)).full
    assert not (await backend.list_agents(first_page.epoch, second_page.revision, 0)).full


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never responds."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield listener.getsockname()[1]


async def test_silent_backend_fails_calls_in_time(silent_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty concurrent calls fail within the timeout of one."""
    assert HASTY < 1.0
    monkeypatch.setattr(backend_module, "TIMEOUT", HASTY)
    backend = Backend(f"redis://:secret@127.0.0.1:{silent_port}/0", "default")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(HASTY)
            turns += 1

    count_task = asyncio.create_task(count_turns())
    results = await asyncio.gather(
        *(backend.put_agent(agent("a"), "x") for _ in range(40)), return_exceptions=True
    )
    count_task.cancel()
    assert turns < 20, "sequential calls would take forty"
    assert all(isinstance(error, BackendUnavailableError) for error in results)
    assert "did not answer in time" in str(results[0])
    assert "secret" not in str(results[0])
    await backend.close()


@pytest.mark.parametrize("milliseconds", [2, 5, 10, 15, 20, 30])
async def test_timeout_while_connecting_ends_every_call(
    silent_port: int, monkeypatch: pytest.MonkeyPatch, milliseconds: int
) -> None:
    """A call ends in any phase of its connection; forty wait no longer than one."""
    monkeypatch.setattr(backend_module, "TIMEOUT", milliseconds / 1000)
    backend = Backend(f"redis://:secret@127.0.0.1:{silent_port}/0", "default")
    calls = [asyncio.create_task(backend.put_agent(agent("a"), "x")) for _ in range(40)]
    await asyncio.wait(calls, timeout=10)
    assert [call for call in calls if not call.done()] == []
    assert all(isinstance(call.exception(), BackendUnavailableError) for call in calls)
    await backend.close()


async def test_refused_connection_fails_at_once(silent_port: int) -> None:
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))
        port = bound_socket.getsockname()[1]
    backend = Backend(f"redis://127.0.0.1:{port}/0", "default")
    with pytest.raises(BackendUnavailableError, match="cannot be used"):
        await backend.list_instances("auth")
    await backend.close()


async def test_backend_reconnects_after_cut_connections(valkey_url: str, prefix: str) -> None:
    """At most one call fails."""
    backend = Backend(valkey_url, "default", prefix=prefix)
    await backend.put_agent(agent("a"), "x")
    async with redis.Redis.from_url(valkey_url) as admin:
        await admin.client_kill_filter(_type="normal", skipme=True)

    async def is_written() -> bool:
        try:
            await backend.put_agent(agent("a"), "x")
        except BackendUnavailableError:
            return False
        return True

    await eventually(is_written)
    await backend.close()


def test_invalid_url_is_refused() -> None:
    with pytest.raises(ValueError, match="scheme"):
        Backend("http://x", "default")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_reset_connection_fails_calls_at_once(
    run: Callable[[Coroutine[Any, Any, None]], None], valkey_url: str, prefix: str
) -> None:
    """Each pending call succeeds or fails by the reset, none by its timeout."""

    async def run_calls() -> None:
        async with forwarded_backend(valkey_url, prefix) as (forward, backend):
            for _ in range(10):
                calls = [
                    asyncio.ensure_future(backend.put_instance("proxy", server("a"), 60.0)) for _ in range(60)
                ]
                await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                await forward.change(mode=ForwardMode.CUT)
                results = await asyncio.gather(*calls, return_exceptions=True)
                assert all(error is None or isinstance(error, BackendUnavailableError) for error in results)
                assert not any(isinstance(error, BackendTimeoutError) for error in results)
                await forward.change(mode=ForwardMode.PASS)

    run(run_calls())


def networking_config(revision: str) -> types_pb2.ClusterNetworkingConfigV2:
    return types_pb2.ClusterNetworkingConfigV2(metadata={"revision": revision})


async def test_networking_config_is_written_conditionally(backend: Backend) -> None:
    """If there is none, over a given revision, or over any."""
    assert await backend.get_networking_config() is None
    assert not await backend.put_networking_config(networking_config("1"), "is", "0")
    assert await backend.put_networking_config(networking_config("1"), "absent")
    assert not await backend.put_networking_config(networking_config("2"), "absent")
    assert not await backend.put_networking_config(networking_config("2"), "is", "")
    assert await backend.put_networking_config(networking_config("2"), "is", "1")
    assert await backend.get_networking_config() == networking_config("2")
    assert await backend.put_networking_config(networking_config("3"))
    assert await backend.get_networking_config() == networking_config("3")


async def test_unreadable_resources_are_left_out(valkey_url: str, prefix: str) -> None:
    """They are reported by name; an unreadable networking config raises an error."""
    unreadable_names: list[str] = []
    backend = Backend(
        valkey_url,
        "default",
        prefix=prefix,
        on_unreadable_resource=lambda name, reason: unreadable_names.append(name),
    )
    await backend.put_instance("proxy", server("a"), 60.0)
    await backend.put_instance("proxy", server("b"), 60.0)
    await backend.put_agent(agent("c"), "auth-1")
    await backend.put_agent(agent("d"), "auth-1")
    await backend.put_networking_config(types_pb2.ClusterNetworkingConfigV2())
    async with redis.Redis.from_url(valkey_url) as raw:
        for key in ("proxy:a", "agent:c"):
            await raw.set(f"{prefix}:default:{key}", b"\xff\xff", keepttl=True)
        await raw.hset(f"{prefix}:default:networking-config", "body", b"\xff\xff")
    assert await proxy_names(backend) == ["b"]
    page = await backend.list_agents("", 0, 0)
    assert [entry.agent.agent_id for entry in page.agents] == ["d"]
    assert await backend.get_agent("c") is None
    assert unreadable_names == ["proxy a", "an agent", "agent c"]
    with pytest.raises(UnreadableResourceError, match="cannot read the networking config"):
        await backend.get_networking_config()
    await backend.close()


async def test_large_agents_are_split_into_pages(backend: Backend) -> None:
    """No page exceeds gRPC's default limit, except for a single larger agent; none is left out."""
    sizes = [100_000] * 50 + [3_000_000] + [10] * 5
    for number, size in enumerate(sizes):
        resource = agent(f"a{number}")
        resource.labels["x"] = "y" * size
        await backend.put_agent(resource, "auth-1")
    agent_ids: list[str] = []
    revision, pages = 0, 0
    page = await backend.list_agents("", 0, 0)
    while True:
        entries = [entry.ByteSize() for entry in page.agents]
        assert sum(entries) < 2_200_000 or len(entries) == 1
        agent_ids += [entry.agent.agent_id for entry in page.agents]
        assert page.revision > revision
        revision, pages = page.revision, pages + 1
        if not page.more:
            break
        page = await backend.list_agents(page.epoch, page.revision, 0)
    assert agent_ids == [f"a{number}" for number in range(len(sizes))]
    assert 4 <= pages <= 6
