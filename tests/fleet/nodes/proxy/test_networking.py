"""The networking config in a proxy."""

from __future__ import annotations

import logging

import pytest
import redis.asyncio as redis

from fleet.nodes.auth.cluster_config import NetworkingConfigCache, get_or_create
from fleet.nodes.proxy.networking import ProxyNetworking
from fleet.protocol.networking.keep_alive import KeepAlive
from fleet.protocol.recovery.tunnel_settings import Overrides
from tests.fakes.agents import Agents
from tests.fakes.plane import Plane, get_diag, is_serving
from tests.fakes.waiting import eventually


async def test_config_change_is_applied_and_announced_to_agents(plane: Plane, agents: Agents) -> None:
    """The proxy uses the new keep-alive, and every agent gets the new revision."""
    proxy = await plane.proxy(ttl=2.0)
    backend = proxy.instance.backend
    agent = await agents.connect(proxy, "a")
    message = await get_or_create(backend)
    message.spec.keep_alive_interval = 7_000_000_000
    message.metadata.revision = "next"
    await backend.put_networking_config(message)
    await eventually(lambda: proxy.table.keep_alive == KeepAlive(7.0, 3))
    while not (frame := await agent.read()).HasField("networking_config_notice") or (
        frame.networking_config_notice.revision != "next"
    ):
        pass


async def test_invalid_config_is_refused_and_logged_once(
    plane: Plane, agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    """A value out of range changes no settings and closes no tunnel."""
    proxy = await plane.proxy(ttl=1.0)
    await agents.connect(proxy, "a")
    backend = proxy.instance.backend
    message = await get_or_create(backend)
    message.spec.keep_alive_interval = -1
    message.metadata.revision = "bad"
    with caplog.at_level(logging.WARNING):
        await backend.put_networking_config(message)
        await eventually(lambda: proxy.networking.revision == "bad")
        await proxy.networking.apply_stored_config()
    assert caplog.text.count("networking-config.refused") == 1
    assert proxy.table.keep_alive == KeepAlive()
    assert len(proxy.table) == 1
    metrics = (await get_diag(proxy.instance, "/metrics"))[1]
    assert 'refloat_refused_inputs_total{kind="networking-config"} 1.0' in metrics


async def test_config_that_is_damaged_while_it_is_read_is_refused_once(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the revision of what was read, not by that of the config before."""
    # Of an auth, which does not read the config meanwhile, as a proxy would.
    proxy, auth = await plane.proxy(ttl=600.0), await plane.auth(ttl=600.0)
    backend = auth.instance.backend
    networking = ProxyNetworking(auth.instance, Overrides(), proxy.table)
    await get_or_create(backend)
    read_config = backend.get_networking_config

    async def damage_and_read() -> object:
        async with redis.Redis.from_url(plane.backend_url) as client:
            await client.hset(
                f"{plane.prefix}:default:networking-config",
                mapping={"body": b"\xff\xff", "revision": b"damaged"},
            )
        return await read_config()

    monkeypatch.setattr(backend, "get_networking_config", damage_and_read)
    for _ in range(2):
        await networking.apply_stored_config()
    assert networking.revision == "damaged"
    metrics = (await get_diag(auth.instance, "/metrics"))[1]
    assert 'refloat_refused_inputs_total{kind="networking-config"} 1.0' in metrics


async def test_unreadable_config_is_refused_once_per_revision(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    """The refusal is counted and logged by its revision; proxies and auths keep working."""
    proxy, auth = await plane.proxy(ttl=1.0), await plane.auth(ttl=600.0)
    async with redis.Redis.from_url(plane.backend_url) as client:
        await client.hset(
            f"{plane.prefix}:default:networking-config",
            mapping={"body": b"\xff\xff", "revision": b"damaged"},
        )
    await eventually(lambda: proxy.networking.revision == "damaged")
    await proxy.networking.apply_stored_config()
    second = await plane.proxy("proxy-2", ttl=1.0)
    await eventually(lambda: second.instance.flags.id in proxy._publisher._entries)
    current = NetworkingConfigCache(auth.instance)
    assert await current.get("damaged") is None
    assert await current.get("damaged") is None
    for node in (proxy, auth):
        metrics = (await get_diag(node.instance, "/metrics"))[1]
        assert 'refloat_refused_inputs_total{kind="networking-config"} 1.0' in metrics
    assert "backend.unreachable" not in caplog.text
    assert caplog.text.count("networking-config.refused: revision damaged: ") >= 2
    late_auth = await plane.auth("late", ttl=600.0)
    assert await is_serving(late_auth.instance)
