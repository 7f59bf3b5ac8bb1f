"""Heartbeats of an agent over its auth connection, with real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from fleet.nodes.agent.auth_connection import Heartbeats, Identity
from fleet.processes import background
from fleet.protocol.recovery import announce
from fleet.protocol.recovery.pick_healthy import BalancerSettings
from fleet.protocol.recovery.tracker import Tracker
from fleet.transport.pick_healthy.channel_factory import open_channel
from tests.fakes.auths import FakeAuth
from tests.fakes.waiting import eventually

TTL = 600.0


class OneAgent:
    """The heartbeats of one agent, with a channel to two auths, of which it has the first."""

    def __init__(self, *auths: FakeAuth) -> None:
        self.auths = auths
        self.sent_to: list[str] = []
        channel = open_channel(
            [auth.address for auth in auths],
            settings=BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02),
            on_change=lambda: self.heartbeats.on_connection_change(),
        )
        tracker = Tracker("default")
        self.heartbeats = Heartbeats(
            Identity("00000000-0000-0000-0000-000000000001", "agent-1", labels={"env": "prod"}),
            *(channel, TTL, lambda: tracker.snapshot(0.0)),
            lambda response: self.sent_to.append(response.auth_id),
        )


@pytest.fixture
async def agent(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OneAgent]:
    """An agent that has sent its first heartbeats, and waits forever before it sends other news."""
    async with AsyncExitStack() as stack:
        auths = [await FakeAuth(name).start() for name in ("auth-1", "auth-2")]
        for auth in auths:
            stack.push_async_callback(auth.stop)
        agent = OneAgent(*auths)
        stack.push_async_callback(agent.heartbeats.channel.close)
        task = background.start(agent.heartbeats.run(), name="heartbeats")
        stack.push_async_callback(background.stop, [task])
        await eventually(lambda: agent.sent_to == ["auth-1"])
        monkeypatch.setattr(announce, "NEWS_DELAY", 3600.0)
        yield agent


async def test_heartbeat_describes_the_agent(agent: OneAgent) -> None:
    (request,) = agent.auths[0].heartbeats
    resource = request.agent
    assert (resource.name, dict(resource.labels), resource.ttl_ms) == ("agent-1", {"env": "prod"}, 600_000)
    assert (resource.policy.mode, resource.policy.auth_id) == ("reconnect", "auth-1")
    assert resource.HasField("tracker")


async def test_auth_that_an_agent_moves_to_hears_of_it_at_once(agent: OneAgent) -> None:
    """Users can be sent over the new connection; other news wait for more of them."""
    agent.auths[0].set_health(healthy=False)
    await eventually(lambda: agent.sent_to == ["auth-1", "auth-2"])


async def test_another_channel_is_reported_at_once(agent: OneAgent) -> None:
    channel = open_channel([agent.auths[1].address])
    old_channel = agent.heartbeats.switch_channel(channel, "auth-2")
    await old_channel.close()
    await eventually(lambda: agent.sent_to == ["auth-1", "auth-2"])


async def test_failed_heartbeat_is_repeated_at_once(
    agent: OneAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """The next one is due minutes later, and a failure that a retry mends is not logged."""
    agent.auths[1].heartbeat_fails = 1
    agent.auths[0].set_health(healthy=False)
    await eventually(lambda: agent.sent_to == ["auth-1", "auth-2"])
    assert "heartbeat.failed" not in caplog.text
