"""The backends of a gateway: names, addresses and health checks."""

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
async def make_backends() -> AsyncIterator[Callable[..., Backends]]:
    backend_groups: list[Backends] = []

    def make_one(**options: Any) -> Backends:
        backends = Backends(
            fixed_addresses={("svc", 1): tuple(options.get("svc", ()))},
            probes=probe_schedule.ProbeSettings(interval=0.05, fast_interval=0.01, timeout=30),
            options=ConnectionOptions(),
            dial_within=5.0,
            tls=None,
            server_name="",
            on_resolved=options.get("on_resolved", lambda: None),
            health=options.get("health", RECOMMENDED_SETTINGS),
        )
        backend_groups.append(backends)
        return backends

    yield make_one
    for backends in backend_groups:
        await backends.close()


def list_health(backends: Backends) -> list[tuple[str, str]]:
    return [(backend["health"], backend["error"]) for backend in backends.describe()]


async def test_health_follows_grpc_health_service(make_backends: Callable[..., Backends]) -> None:
    """NOT_SERVING makes a backend unhealthy with that reason, and SERVING makes it healthy again."""
    server, servicer = grpc.aio.server(options=server_options()), HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    backends = make_backends(svc=[("127.0.0.1", port)])
    await backends.use([("svc", 1)])

    await eventually(lambda: list_health(backends) == [("healthy", "")])
    await servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    await eventually(lambda: list_health(backends) == [("unhealthy", "the backend reported NOT_SERVING")])
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    await eventually(lambda: list_health(backends) == [("healthy", "")])
    await server.stop(None)
    await eventually(lambda: list_health(backends) == [("unhealthy", "connection refused")])


async def test_unknown_health_status_is_unhealthy(make_backends: Callable[..., Backends]) -> None:
    """A status number that gRPC does not define counts as not serving; the connection for calls stays open."""

    class UnknownStatusServicer(HealthServicer):
        async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
            return health_pb2.HealthCheckResponse(status=7)

    server = grpc.aio.server(options=server_options())
    health_pb2_grpc.add_HealthServicer_to_server(UnknownStatusServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    backends = make_backends(svc=[("127.0.0.1", port)])
    await backends.use([("svc", 1)])

    await eventually(lambda: list_health(backends) == [("unhealthy", "the backend reported status 7")])
    assert backends.describe()[0]["connections"] == 1
    await server.stop(None)


async def test_backend_without_health_service_is_healthy(make_backends: Callable[..., Backends]) -> None:
    """A response that the service is unimplemented counts as healthy."""
    echo = await Echo().start()
    backends = make_backends(svc=[("127.0.0.1", echo.port)])
    await backends.use([("svc", 1)])

    await eventually(lambda: list_health(backends) == [("healthy", "")])
    await echo.stop()


async def test_weights_are_shared_among_addresses(make_backends: Callable[..., Backends]) -> None:
    """A backend's weight is split among its addresses; an address of two backends gets both shares."""
    backends = make_backends(svc=[("127.0.0.1", 1), ("127.0.0.1", 2)])
    await backends.use([("svc", 1), ("127.0.0.1", 2)])

    weights = backends.weights_of(
        [BackendRef("svc", 1, 4), BackendRef("127.0.0.1", 2), BackendRef("unknown", 1)]
    )
    assert weights == {"127.0.0.1:1": 2.0, "127.0.0.1:2": 3.0}


async def test_name_is_looked_up_again_and_keeps_addresses_on_failure(
    make_backends: Callable[..., Backends], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed lookup keeps the last addresses, and an address that stays keeps its health."""
    monkeypatch.setattr(gateway_backends, "_RESOLVE_INTERVAL", 0.02)
    is_resolved = asyncio.Event()
    lookups = 0
    addresses: list[Any] = [("127.0.0.1", 1)]

    async def look_up(*args: Any, **kwargs: Any) -> list[Any]:
        nonlocal lookups
        lookups += 1
        if not addresses:
            raise OSError(None, "no such name")
        return [(0, 0, 0, "", address) for address in addresses]

    backends = make_backends(on_resolved=is_resolved.set)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    await backends.use([("name", 7)])
    task = asyncio.create_task(backends.keep_resolving())
    destination = backends.destinations.get("127.0.0.1:1")
    addresses.append(("127.0.0.1", 2))
    await is_resolved.wait()

    assert set(backends.weights_of([BackendRef("name", 7)])) == {"127.0.0.1:1", "127.0.0.1:2"}
    assert backends.destinations.get("127.0.0.1:1") is destination
    addresses.clear()
    lookup_count = lookups
    await eventually(lambda: lookups > lookup_count + 2)
    assert len(backends.weights_of([BackendRef("name", 7)])) == 2
    assert backends.list_unresolved() == []
    task.cancel()


async def test_slow_lookup_does_not_replace_newer_backends(
    make_backends: Callable[..., Backends], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup that started before the backends changed does not remove the new backends when it ends."""
    monkeypatch.setattr(gateway_backends, "_RESOLVE_INTERVAL", 0.02)
    is_waiting, can_continue = asyncio.Event(), asyncio.Event()
    lookups: list[str] = []

    async def look_up(name: str, port: int, **kwargs: Any) -> list[Any]:
        lookups.append(name)
        if lookups.count("old") == 2 and name == "old":
            is_waiting.set()
            await can_continue.wait()
        return [(0, 0, 0, "", ("127.0.0.1", 1 if name == "old" else 2))]

    backends = make_backends()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    await backends.use([("old", 7)])
    task = asyncio.create_task(backends.keep_resolving())
    await is_waiting.wait()
    await backends.use([("new", 7)])
    can_continue.set()
    await eventually(lambda: lookups.count("new") > 2)

    assert backends.weights_of([BackendRef("new", 7), BackendRef("old", 7)]) == {"127.0.0.1:2": 1.0}
    task.cancel()


async def test_failed_lookups_are_logged_once(
    make_backends: Callable[..., Backends], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each kind of failure is logged once, and so is the recovery."""
    monkeypatch.setattr(gateway_backends, "_RESOLVE_RETRY_INTERVAL", 0.02)
    caplog.set_level(logging.INFO)
    errors: list[Exception] = [UnicodeError("label too long"), *[OSError(None, "no such name")] * 4]

    async def look_up(*args: Any, **kwargs: Any) -> list[Any]:
        if errors:
            raise errors.pop(0)
        return [(0, 0, 0, "", ("127.0.0.1", 1))]

    backends = make_backends()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    await backends.use([("name", 7)])
    task = asyncio.create_task(backends.keep_resolving())
    await eventually(lambda: "name:7 can be looked up again" in caplog.text)

    assert caplog.text.count("cannot look up backend") == 2
    task.cancel()


async def test_address_of_another_name_gets_a_new_dialer(make_backends: Callable[..., Backends]) -> None:
    """With TLS the server must show a certificate of the new name, so old connections are not reused."""
    backends = make_backends()
    await backends.use([("127.0.0.1", 9)])
    dialer = backends.dialer_of("127.0.0.1:9")
    await backends.use([("127.0.0.1", 9), ("svc", 1)])
    assert backends.dialer_of("127.0.0.1:9") is dialer
    await backends.use([("localhost", 9)])

    assert [destination for destination in backends.destinations if destination.name == "127.0.0.1:9"]
    assert backends.dialer_of("127.0.0.1:9").server_name == "localhost"


async def test_unknown_name_is_listed_as_unresolved(make_backends: Callable[..., Backends]) -> None:
    """The name has no destinations."""
    backends = make_backends()
    await backends.use([("no-such-host.invalid", 1)])

    assert backends.list_unresolved() == ["no-such-host.invalid:1"]
    assert list(backends.destinations) == []


async def test_removed_backend_is_dropped(make_backends: Callable[..., Backends]) -> None:
    """The gateway no longer probes the backend and closes its connection."""
    echo = await Echo().start()
    backends = make_backends(svc=[("127.0.0.1", echo.port)])
    await backends.use([("svc", 1)])
    await eventually(
        lambda: [destination.verdict.health for destination in backends.destinations] == [Health.HEALTHY]
    )
    await backends.use([])

    assert backends.describe() == []
    await echo.stop()


def test_flag_has_name_port_and_addresses() -> None:
    """Flags with another format are refused."""
    assert parse_flag("a:1=b:2,[::1]:3") == (("a", 1), (("b", 2), ("::1", 3)))
    for text in ("a:1", "a=b:2", "a:1=", "a:1=b"):
        with pytest.raises(ValueError, match="is not"):
            parse_flag(text)


async def test_backend_declares_itself_degraded_or_draining(make_backends: Callable[..., Backends]) -> None:
    """The headers of its health responses decide until they are gone."""
    headers: list[tuple[str, str]] = []

    class HeaderServicer(HealthServicer):
        async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
            await context.send_initial_metadata(tuple(headers))
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

    server = grpc.aio.server(options=server_options())
    health_pb2_grpc.add_HealthServicer_to_server(HeaderServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    backends = make_backends(svc=[("127.0.0.1", port)])
    await backends.use([("svc", 1)])

    def health_and_draining() -> tuple[str, bool]:
        (backend,) = backends.describe()
        return backend["health"], backend["draining"]

    await eventually(lambda: health_and_draining() == ("healthy", False))
    headers[:] = [("x-refloat-draining", "kernel update")]
    await eventually(lambda: health_and_draining() == ("healthy", True))
    headers[:] = [("x-envoy-degraded", "late")]
    await eventually(lambda: health_and_draining() == ("degraded", False))
    assert backends.describe()[0]["declared"] == "degraded"
    headers.clear()
    await eventually(lambda: health_and_draining() == ("healthy", False))
    assert backends.describe()[0]["declared"] == "unknown"
    await server.stop(None)


async def test_degraded_response_before_first_probe_counts_by_settings(
    make_backends: Callable[..., Backends],
) -> None:
    """With the literal settings a backend that was never probed stays unknown."""
    for settings, expected_health in (
        (RECOMMENDED_SETTINGS, Health.DEGRADED),
        (LITERAL_SETTINGS, Health.UNKNOWN),
    ):
        backends = make_backends(svc=[("127.0.0.1", 1)], health=settings)
        await backends.use({("svc", 1)})
        backends.destinations.record_request("127.0.0.1:1", RequestOutcome.DEGRADED)
        destination = backends.destinations.get("127.0.0.1:1")
        assert destination is not None
        assert destination.verdict.health is expected_health
