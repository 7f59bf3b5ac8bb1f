"""The networking config in a proxy."""

from __future__ import annotations

import logging

import pytest
import redis.asyncio as redis

from fleet.nodes.auth.cluster_config import NetworkingConfigCache, get_or_create
from fleet.protocol.networking.keep_alive import KeepAlive
from tests.fakes.agents import Agents
from tests.fakes.plane import Plane, get, serving
from tests.fakes.waiting import eventually


async def test_change_is_followed_and_hinted_at(plane: Plane, agents: Agents) -> None:
    """A new revision changes what the proxy expects of agents, and each agent hears of it."""
    proxy = await plane.proxy(ttl=2.0)
    backend = proxy.instance.backend
    agent = await agents.connect(proxy, "a")
    message = await get_or_create(backend)
    message.spec.keep_alive_interval = 7_000_000_000
    message.metadata.revision = "next"
    await backend.put_networking_config(message)
    await eventually(lambda: proxy.table.keep_alive == KeepAlive(7.0, 3))
    while not (frame := await agent.read()).HasField("networking_news") or (
        frame.networking_news.revision != "next"
    ):
        pass


async def test_malformed_config_is_refused_once(
    plane: Plane, agents: Agents, caplog: pytest.LogCaptureFixture
) -> None:
    """What is out of range changes nothing and ends nothing."""
    proxy = await plane.proxy(ttl=1.0)
    await agents.connect(proxy, "a")
    backend = proxy.instance.backend
    message = await get_or_create(backend)
    message.spec.keep_alive_interval = -1
    message.metadata.revision = "bad"
    with caplog.at_level(logging.WARNING):
        await backend.put_networking_config(message)
        await eventually(lambda: proxy.networking.revision == "bad")
        await proxy.networking.refresh()
    assert caplog.text.count("networking-config.refused") == 1
    assert proxy.table.keep_alive == KeepAlive()
    assert len(proxy.table) == 1
    metrics = (await get(proxy.instance, "/metrics"))[1]
    assert 'refloat_refused_total{kind="networking-config"} 1.0' in metrics


async def test_config_that_cannot_be_read_is_refused_once(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted and told by its revision; proxies are watched, and auths serve, as before."""
    proxy, auth = await plane.proxy(ttl=1.0), await plane.auth(ttl=600.0)
    async with redis.Redis.from_url(plane.backend_url) as raw:
        await raw.hset(
            f"{plane.prefix}:default:networking-config",
            mapping={"body": b"\xff\xff", "revision": b"damaged"},
        )
    await eventually(lambda: proxy.networking.revision == "damaged")
    await proxy.networking.refresh()
    second = await plane.proxy("proxy-2", ttl=1.0)
    await eventually(lambda: second.instance.flags.id in proxy._publisher._entries)
    current = NetworkingConfigCache(auth.instance)
    assert await current.get("damaged") is None
    assert await current.get("damaged") is None
    for node in (proxy, auth):
        metrics = (await get(node.instance, "/metrics"))[1]
        assert 'refloat_refused_total{kind="networking-config"} 1.0' in metrics
    assert "proxies.unseen" not in caplog.text
    assert caplog.text.count("networking-config.refused: revision damaged: ") >= 2
    late = await plane.auth("late", ttl=600.0)
    assert await serving(late.instance)
