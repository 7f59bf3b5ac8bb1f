"""Backends of a gateway: names, addresses, health checks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from fleet.nodes.gateway import backends as gateway_backends
from fleet.nodes.gateway.backends import Backends, parse_flag
from fleet.protocol.destination import probe_schedule
from fleet.protocol.destination.health import LITERAL_SETTINGS, RECOMMENDED_SETTINGS, Health, RequestOutcome
from fleet.protocol.retry.grpc_route import BackendRef
from fleet.transport.channels import server_options
from fleet.transport.http2.options import ConnectionOptions
from tests.fakes.echoing import Echo
from tests.fakes.waiting import eventually

assert health


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., Backends]]:
    made: list[Backends] = []

    def make(**fixed: Any) -> Backends:
        backends = Backends(
            fixed_addresses={("svc", 1): tuple(fixed.get("svc", ()))},
            probes=probe_schedule.Settings(interval=0.05, fast_interval=0.01, timeout=30),
            options=ConnectionOptions(),
            dial_within=5.0,
            tls=None,
            server_name="",
            on_resolved=fixed.get("on_resolved", lambda: None),
            health=fixed.get("health", RECOMMENDED_SETTINGS),
        )
        made.append(backends)
        return backends

    yield make
    for backends in made:
        await backends.close()


def health_of(backends: Backends) -> list[tuple[str, str]]:
    return [(one["health"], one["error"]) for one in backends.describe()]


async def test_health_by_grpc_health_v1(opened: Callable[..., Backends]) -> None:
    """SERVING, NOT_SERVING with its word, and back."""
    server, servicer = grpc.aio.server(options=server_options()), HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    backends = opened(svc=[("127.0.0.1", port)])
    await backends.use([("svc", 1)])

    await eventually(lambda: health_of(backends) == [("healthy", "")])
    await servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    await eventually(lambda: health_of(backends) == [("unhealthy", "the backend reported NOT_SERVING")])
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    await eventually(lambda: health_of(backends) == [("healthy", "")])
    await server.stop(None)
    await eventually(lambda: health_of(backends) == [("unhealthy", "connection refused")])


async def test_health_that_nobody_knows(opened: Callable[..., Backends]) -> None:
    """A status of a later protocol is none that serves; the connection that calls use stays."""

    class Later(HealthServicer):
        async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
            return health_pb2.HealthCheckResponse(status=7)

    server = grpc.aio.server(options=server_options())
    health_pb2_grpc.add_HealthServicer_to_server(Later(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    backends = opened(svc=[("127.0.0.1", port)])
    await backends.use([("svc", 1)])

    await eventually(lambda: health_of(backends) == [("unhealthy", "the backend reported status 7")])
    assert backends.describe()[0]["connections"] == 1
    await server.stop(None)


async def test_backend_without_health_service_is_healthy(opened: Callable[..., Backends]) -> None:
    """That it answers is all there is to know."""
    echo = await Echo().start()
    backends = opened(svc=[("127.0.0.1", echo.port)])
    await backends.use([("svc", 1)])

    await eventually(lambda: health_of(backends) == [("healthy", "")])
    await echo.stop()


async def test_weights_are_shared_among_addresses(opened: Callable[..., Backends]) -> None:
    """A backend of two addresses gets no more than one of one; the same address twice gets both shares."""
    backends = opened(svc=[("127.0.0.1", 1), ("127.0.0.1", 2)])
    await backends.use([("svc", 1), ("127.0.0.1", 2)])

    weights = backends.weights(
        [BackendRef("svc", 1, 4), BackendRef("127.0.0.1", 2), BackendRef("unknown", 1)]
    )
    assert weights == {"127.0.0.1:1": 2.0, "127.0.0.1:2": 3.0}


async def test_name_that_changes_its_addresses(
    opened: Callable[..., Backends], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked up again and again; a lookup that fails keeps what was known; who is left keeps its health."""
    monkeypatch.setattr(gateway_backends, "_RESOLVE", 0.02)
    told = asyncio.Event()
    lookups = 0
    addresses: list[Any] = [("127.0.0.1", 1)]

    async def looked_up(*args: Any, **kwargs: Any) -> list[Any]:
        nonlocal lookups
        lookups += 1
        if not addresses:
            raise OSError(None, "no such name")
        return [(0, 0, 0, "", address) for address in addresses]

    backends = opened(on_resolved=told.set)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", looked_up)
    await backends.use([("name", 7)])
    task = asyncio.create_task(backends.keep_resolving())
    first = backends.destinations.get("127.0.0.1:1")
    addresses.append(("127.0.0.1", 2))
    await told.wait()

    assert set(backends.weights([BackendRef("name", 7)])) == {"127.0.0.1:1", "127.0.0.1:2"}
    assert backends.destinations.get("127.0.0.1:1") is first
    addresses.clear()
    asked = lookups
    await eventually(lambda: lookups > asked + 2)
    assert len(backends.weights([BackendRef("name", 7)])) == 2
    assert backends.list_unresolved() == []
    task.cancel()


async def test_names_that_were_wanted_before(
    opened: Callable[..., Backends], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup that began before others were wanted, and ends after, does not take those away."""
    monkeypatch.setattr(gateway_backends, "_RESOLVE", 0.02)
    slow, go_on = asyncio.Event(), asyncio.Event()
    lookups: list[str] = []

    async def looked_up(name: str, port: int, **kwargs: Any) -> list[Any]:
        lookups.append(name)
        if lookups.count("old") == 2 and name == "old":
            slow.set()
            await go_on.wait()
        return [(0, 0, 0, "", ("127.0.0.1", 1 if name == "old" else 2))]

    backends = opened()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", looked_up)
    await backends.use([("old", 7)])
    task = asyncio.create_task(backends.keep_resolving())
    await slow.wait()
    await backends.use([("new", 7)])
    go_on.set()
    await eventually(lambda: lookups.count("new") > 2)

    assert backends.weights([BackendRef("new", 7), BackendRef("old", 7)]) == {"127.0.0.1:2": 1.0}
    task.cancel()


async def test_lookups_that_fail_are_said_once(
    opened: Callable[..., Backends], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is wrong with a name; and that it is found again."""
    monkeypatch.setattr(gateway_backends, "_RESOLVE_SOON", 0.02)
    caplog.set_level(logging.INFO)
    errors: list[Exception] = [UnicodeError("label too long"), *[OSError(None, "no such name")] * 4]

    async def looked_up(*args: Any, **kwargs: Any) -> list[Any]:
        if errors:
            raise errors.pop(0)
        return [(0, 0, 0, "", ("127.0.0.1", 1))]

    backends = opened()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", looked_up)
    await backends.use([("name", 7)])
    task = asyncio.create_task(backends.keep_resolving())
    await eventually(lambda: "name:7 can be looked up again" in caplog.text)

    assert caplog.text.count("cannot look up backend") == 2
    task.cancel()


async def test_address_that_another_name_has(opened: Callable[..., Backends]) -> None:
    """With TLS it must show a certificate of that name: connections under the old one are not used for it."""
    backends = opened()
    await backends.use([("127.0.0.1", 9)])
    before = backends.dialer("127.0.0.1:9")
    await backends.use([("127.0.0.1", 9), ("svc", 1)])
    assert backends.dialer("127.0.0.1:9") is before
    await backends.use([("localhost", 9)])

    assert [one for one in backends.destinations if one.name == "127.0.0.1:9"]
    assert backends.dialer("127.0.0.1:9").server_name == "localhost"


async def test_name_that_is_none(opened: Callable[..., Backends]) -> None:
    """It has no address, and is named."""
    backends = opened()
    await backends.use([("no-such-host.invalid", 1)])

    assert backends.list_unresolved() == ["no-such-host.invalid:1"]
    assert list(backends.destinations) == []


async def test_backend_that_is_named_no_more(opened: Callable[..., Backends]) -> None:
    """It is neither probed nor kept connected."""
    echo = await Echo().start()
    backends = opened(svc=[("127.0.0.1", echo.port)])
    await backends.use([("svc", 1)])
    await eventually(lambda: [one.verdict.health for one in backends.destinations] == [Health.HEALTHY])
    await backends.use([])

    assert backends.describe() == []
    await echo.stop()


def test_flag() -> None:
    """A name with a port, and addresses."""
    assert parse_flag("a:1=b:2,[::1]:3") == (("a", 1), (("b", 2), ("::1", 3)))
    for wrong in ("a:1", "a=b:2", "a:1=", "a:1=b"):
        with pytest.raises(ValueError, match="is not"):
            parse_flag(wrong)


async def test_what_an_instance_says_of_itself(opened: Callable[..., Backends]) -> None:
    """Headers of its answer to a health check: degraded, or wanting nobody new, until it says so no more."""
    said: list[tuple[str, str]] = []

    class Standing(HealthServicer):
        async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
            await context.send_initial_metadata(tuple(said))
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

    server = grpc.aio.server(options=server_options())
    health_pb2_grpc.add_HealthServicer_to_server(Standing(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    backends = opened(svc=[("127.0.0.1", port)])
    await backends.use([("svc", 1)])

    def now() -> tuple[str, bool]:
        (one,) = backends.describe()
        return one["health"], one["draining"]

    await eventually(lambda: now() == ("healthy", False))
    said[:] = [("x-refloat-draining", "kernel update")]
    await eventually(lambda: now() == ("healthy", True))
    said[:] = [("x-envoy-degraded", "late")]
    await eventually(lambda: now() == ("degraded", False))
    assert backends.describe()[0]["declared"] == "degraded"
    said.clear()
    await eventually(lambda: now() == ("healthy", False))
    assert backends.describe()[0]["declared"] == "unknown"
    await server.stop(None)


async def test_health_read_literally(opened: Callable[..., Backends]) -> None:
    """A backend that answers a call as degraded before it was ever probed is Unknown still."""
    for settings, concluded in ((RECOMMENDED_SETTINGS, Health.DEGRADED), (LITERAL_SETTINGS, Health.UNKNOWN)):
        backends = opened(svc=[("127.0.0.1", 1)], health=settings)
        await backends.use({("svc", 1)})
        backends.destinations.record_request("127.0.0.1:1", RequestOutcome.DEGRADED)
        watched = backends.destinations.get("127.0.0.1:1")
        assert watched is not None
        assert watched.verdict.health is concluded
