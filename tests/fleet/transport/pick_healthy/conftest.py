"""Auths, forwards and channels that end with the test. Each test runs with auths reached directly and through
a proxy, and with channels of both kinds, unless its file says otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fleet.nodes.local.forwards import Forward
from fleet.protocol.recovery.pick_healthy import BalancerSettings
from fleet.transport import channels as transport_channels
from fleet.transport.channels import GrpcOptions, KeepaliveSettings
from fleet.transport.pick_healthy.channel_factory import open_blocking_channel, open_channel
from tests.fakes.auth_paths import forwarder_to
from tests.fakes.auths import FakeAuth
from tests.fakes.in_threads import InThreads

#: Attempts follow at once, as a shuffle may lead to any server.
_FAST = BalancerSettings(first_wait=0.0, base=0.02, ceiling=0.02)


@pytest.fixture(autouse=True)
def first_address_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make gRPC wait 2 s (its maximum, instead of 0.25 s) for an address before it also tries the next one.

    On a busy machine the second server would otherwise win the first connection.
    """
    options_of = transport_channels.channel_options

    def patient_options(keepalive: KeepaliveSettings | None = None, **options: bool) -> GrpcOptions:
        return [*options_of(keepalive, **options), ("grpc.happy_eyeballs_connection_attempt_delay_ms", 2000)]

    monkeypatch.setattr(transport_channels, "channel_options", patient_options)


@pytest.fixture(params=["direct", "proxy"])
async def auths(request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Awaitable[FakeAuth]]]:
    """Return a function that starts an auth; clients connect to its `reached_at`."""
    running_auths: list[FakeAuth] = []
    async with AsyncExitStack() as stack:

        async def start(name: str, *args: Any, **kwargs: Any) -> FakeAuth:
            auth = await FakeAuth(name, *args, **kwargs).start()
            running_auths.append(auth)
            if request.param == "proxy":
                auth.forwarder = await stack.enter_async_context(forwarder_to(lambda: auth.address))
            return auth

        yield start
    for auth in running_auths:
        await auth.stop()


@pytest.fixture
async def forwards() -> AsyncIterator[Callable[[FakeAuth], Awaitable[Forward]]]:
    """Return a function that starts a forward to an auth; it counts, holds and cuts connections."""
    running_forwards: list[Forward] = []

    async def start(auth: FakeAuth) -> Forward:
        running_forwards.append(Forward(auth.name, ("127.0.0.1", 0), auth.reached_at))
        await running_forwards[-1].start()
        return running_forwards[-1]

    yield start
    for forward in running_forwards:
        await forward.stop()


@pytest.fixture(params=["aio", "blocking"])
async def channels(request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Any]]:
    """Return a function that opens a channel."""
    open_channels: list[Any] = []

    def open_channel_to(
        *endpoints: FakeAuth | Forward, settings: BalancerSettings = _FAST, **options: Any
    ) -> Any:
        addresses = [
            endpoint.reached_at if isinstance(endpoint, FakeAuth) else endpoint.listen
            for endpoint in endpoints
        ]
        if request.param == "aio":
            open_channels.append(open_channel(addresses, settings=settings, **options))
        else:
            open_channels.append(InThreads(open_blocking_channel(addresses, settings=settings, **options)))
        return open_channels[-1]

    yield open_channel_to
    for channel in open_channels:
        await channel.close()
