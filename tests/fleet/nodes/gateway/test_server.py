"""Calls through the gateway over real gRPC: every kind of call, routes by host and method, limits and shutdown."""

from __future__ import annotations

import asyncio
import datetime
import json
import signal
import sys
from collections.abc import AsyncIterator
from datetime import UTC
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import grpc.aio
import pytest
from click.testing import CliRunner

from fleet.nodes.gateway import server as gateway_node
from fleet.protocol.destination import picker
from fleet.transport import certificate_authority
from fleet.transport.channels import channel_options, open_channel
from fleet.transport.tls import SERVER_NAME, TLSFiles
from tests.fakes.echoing import ECHO, Echo, route, run_gateway, write_routes
from tests.fakes.waiting import eventually


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    backend = await Echo().start()
    yield backend
    await backend.stop()


@pytest.fixture
async def channel(echo: Echo, tmp_path: Path) -> AsyncIterator[grpc.aio.Channel]:
    """Yield a channel to a gateway with one rule for all calls."""
    async with (
        run_gateway(tmp_path, {"svc:1": [echo.address]}) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        yield channel


async def expect_failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error: grpc.aio.AioRpcError = caught.value
    return error


async def test_all_kinds_of_calls_pass(channel: grpc.aio.Channel) -> None:
    """The gateway has no configuration of which methods are streams."""

    async def send_three() -> AsyncIterator[bytes]:
        for message in (b"a", b"b", b"c"):
            yield message

    assert await channel.unary_unary(f"{ECHO}Unary")(b"abc") == b"abc"
    assert await channel.stream_unary(f"{ECHO}Up")(send_three()) == b"abc"
    assert [message async for message in channel.unary_stream(f"{ECHO}Down")(b"abc")] == [b"a", b"b", b"c"]
    assert [message async for message in channel.stream_stream(f"{ECHO}Both")(send_three())] == [
        b"a",
        b"b",
        b"c",
    ]
    assert await channel.unary_unary(f"{ECHO}Unary")(b"") == b""


async def test_messages_pass_one_at_a_time(channel: grpc.aio.Channel) -> None:
    """Each message arrives before the next one is sent, without the end of the stream."""
    call = channel.stream_stream(f"{ECHO}Both")()
    for message in (b"first", b"x" * 300_000, b"last"):
        await call.write(message)
        assert await call.read() == message
    await call.done_writing()

    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_metadata_and_trailers_pass_unchanged(channel: grpc.aio.Channel, echo: Echo) -> None:
    """Binary and repeated values, the user agent and the deadline are forwarded."""
    request_metadata = (
        ("x-bin", bytes(range(256))),
        ("x-twice", "1"),
        ("x-twice", "2"),
        ("authorization", "secret"),
    )
    call = channel.unary_unary(f"{ECHO}Unary")(b"a", metadata=request_metadata, timeout=60)
    await call

    assert [pair for pair in await call.trailing_metadata() if pair[0] == "x-bin"] == [request_metadata[0]]
    assert [value for key, value in await call.trailing_metadata() if key == "x-twice"] == ["1", "2"]
    assert dict(await call.initial_metadata()) == {"x-head": "Unary"}
    _, metadata, remaining_seconds = echo.calls[-1]
    assert dict(metadata)["authorization"] == "secret"
    assert "grpc-python-asyncio" in dict(metadata)["user-agent"]
    assert remaining_seconds is not None
    # gRPC core rounds the timeout of each hop, client and gateway, up to a whole 100 ms (timeout_encoding.cc).
    assert 0 < remaining_seconds <= 60 + 2 * 0.1


async def test_status_and_details_pass_unchanged(channel: grpc.aio.Channel) -> None:
    """Details of any script and rich details in trailers are forwarded."""
    details = ("grpc-status-details-bin", b"\x08\x03\xff")
    error = await expect_failure(
        channel.unary_unary(f"{ECHO}Unary")(b"", metadata=(("x-code", "NOT_FOUND"), ("x-d-bin", details[1])))
    )

    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert error.details() == "wörds, with spaces: 100 %"
    assert dict(error.trailing_metadata())["x-d-bin"] == details[1]


@pytest.mark.parametrize("size", [70_000, 3_000_000])
async def test_large_messages_pass(channel: grpc.aio.Channel, size: int) -> None:
    """The messages exceed a frame and every window, with and without compression."""
    body = bytes(range(256)) * (size // 256)

    assert await channel.unary_unary(f"{ECHO}Unary")(body) == body
    assert await channel.unary_unary(f"{ECHO}Unary")(body, compression=grpc.Compression.Gzip) == body


async def test_message_above_the_limit_is_refused(echo: Echo, tmp_path: Path) -> None:
    """The limit is the gateway's, whatever caller and backend allow."""
    async with (
        run_gateway(tmp_path, {"svc:1": [echo.address]}, max_message=1000) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        error = await expect_failure(channel.unary_unary(f"{ECHO}Unary")(b"x" * 1001))
        assert await channel.unary_unary(f"{ECHO}Unary")(b"x" * 1000)

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.details() == "the request has a message larger than 1000 bytes"


async def test_unread_messages_stop_the_sender(channel: grpc.aio.Channel) -> None:
    """Flow control works end to end: the gateway does not buffer, and all messages arrive in the end."""
    call = channel.stream_stream(f"{ECHO}Both")()

    write_task = asyncio.ensure_future(call.write(b"x" * 100_000))
    write_count = 1
    while (await asyncio.wait([write_task], timeout=0.5))[0]:
        assert write_count < 1000, "100 MB are in transit to a caller that does not read"
        write_task = asyncio.ensure_future(call.write(b"x" * 100_000))
        write_count += 1

    async def finish() -> None:
        await write_task
        await call.done_writing()

    finish_task = asyncio.create_task(finish())
    sizes = [len(message) async for message in call]
    assert sizes == [100_000] * write_count
    await finish_task


async def test_deadline_and_cancellation_reach_the_backend(channel: grpc.aio.Channel, echo: Echo) -> None:
    """A caller that gives up ends the call at the backend as well."""
    for seconds in (0.2, 2.0, 20.0):
        error = await expect_failure(channel.unary_unary(f"{ECHO}Hang")(b"", timeout=seconds))
        if echo.calls:  # the call reached the backend, on a busy machine too
            break
    await eventually(lambda: echo.ended_calls == 1)
    call = channel.stream_stream(f"{ECHO}Both")()
    await call.write(b"a")
    await call.read()
    call.cancel()

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: echo.ended_calls == 2)


async def test_lost_caller_cancels_its_calls(echo: Echo, tmp_path: Path) -> None:
    """When the caller's connection is lost, its calls are cancelled at the backend."""
    async with run_gateway(tmp_path, {"svc:1": [echo.address]}) as (gateway, address):
        channel = grpc.aio.insecure_channel(address, options=channel_options())
        call = channel.stream_stream(f"{ECHO}Both")()
        await call.write(b"a")
        await call.read()
        await channel.close()

        await eventually(lambda: echo.ended_calls == 1)
        await eventually(lambda: gateway.listener.call_count == 0)


async def test_calls_are_routed_by_host_service_and_method(echo: Echo, tmp_path: Path) -> None:
    """The host is the call's authority; a missing route, backend or address is named in the details."""
    other_backend = await Echo().start()
    routes = (
        route({"matches": [{"method": {"service": "refloat.test.Echo", "method": "Down"}}]}, name="other"),
        route({"backendRefs": [{"name": "other", "port": 1}]}, name="host", hosts=["*.example.com"]),
        route({"backendRefs": []}, name="none", hosts=["none.example.com"]),
        route({"backendRefs": [{"name": "lost", "port": 1}]}, name="lost", hosts=["lost.example.com"]),
    )
    backends = {"svc:1": [echo.address], "other:1": [other_backend.address], "lost:1": []}
    async with run_gateway(tmp_path, backends, *routes) as (gateway, address):

        async def call(host: str, method: str = "Unary") -> str:
            options = [*channel_options(), ("grpc.default_authority", host)]
            async with grpc.aio.insecure_channel(address, options=options) as channel:
                try:
                    async for _ in channel.unary_stream(ECHO + method)(b"a"):
                        pass
                except grpc.aio.AioRpcError as error:
                    return f"{error.code().name}: {error.details()}"
            return "OK"

        assert await call("a.example.com:443") == "OK"
        assert (len(other_backend.calls), len(echo.calls)) == (1, 0)
        assert await call("b.org", "Down") == "OK"
        assert (len(other_backend.calls), len(echo.calls)) == (1, 1)
        assert await call("b.org") == f"UNIMPLEMENTED: no route matches {ECHO}Unary at b.org"
        assert await call("none.example.com") == "UNAVAILABLE: no backend of none/0 accepts calls"
        assert await call("lost.example.com") == "UNAVAILABLE: no backend of lost/0 accepts calls"
        assert gateway.backends.list_unresolved() == ["lost:1"]
    await other_backend.stop()


async def test_backend_with_weight_zero_gets_no_calls(echo: Echo, tmp_path: Path) -> None:
    """All calls go to the backend with a weight above 0."""
    other_backend = await Echo().start()
    refs = [{"name": "svc", "port": 1, "weight": 0}, {"name": "other", "port": 1, "weight": 5}]
    backends = {"svc:1": [echo.address], "other:1": [other_backend.address]}
    async with (
        run_gateway(tmp_path, backends, route({"backendRefs": refs})) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        for _ in range(5):
            await channel.unary_unary(f"{ECHO}Unary")(b"")
    await other_backend.stop()

    assert (len(echo.calls), len(other_backend.calls)) == (0, 5)


@pytest.mark.parametrize(
    ("flags", "share"), [({}, 1.0), ({"picking_settings": picker.PickerSettings(guard=3)}, 0.6)]
)
async def test_last_healthy_backend_takes_all_calls_without_guard(
    echo: Echo, tmp_path: Path, flags: dict[str, Any], share: float
) -> None:
    """With a guard some calls go to the four dead backends, because the fifth cannot take all."""
    dead_addresses = [f"127.0.0.1:{port}" for port in (1, 2, 3, 4)]
    async with run_gateway(tmp_path, {"svc:1": [echo.address, *dead_addresses]}, **flags) as (gateway, _):

        def are_all_probed() -> bool:
            healths = [backend["health"] for backend in gateway.backends.describe()]
            return sorted(healths) == ["healthy", *["unhealthy"] * 4]

        await eventually(are_all_probed)
        (rule,) = gateway.listener.describe()

    assert rule["backends"]["svc:1"][echo.address] == pytest.approx(share)


def _issue_certificate(folder: Path, name: str = "node") -> TLSFiles:
    now = datetime.datetime.now(UTC)
    ca = certificate_authority.ensure_authority(folder, now=now)
    pair = certificate_authority.issue(ca, name, role="proxy", now=now)
    return TLSFiles(pair.certificate, pair.key, ca.certificate, SERVER_NAME)


async def test_mutual_tls_with_callers_and_backends(tmp_path: Path) -> None:
    """Callers and the gateway need certificates of the right CA."""
    files, other_files = _issue_certificate(tmp_path / "ours"), _issue_certificate(tmp_path / "theirs")
    echo = await Echo().start(files)
    backends = {"svc:1": [echo.address]}
    async with run_gateway(tmp_path, backends, tls=files, backend_tls=files) as (_, address):
        async with open_channel(address, files) as channel:
            assert await channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=30) == b"a"
        async with open_channel(address, TLSFiles(None, None, files.authority, files.server_name)) as channel:
            anonymous_error = await expect_failure(channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=30))
        assert anonymous_error.code() is grpc.StatusCode.UNAVAILABLE

    async with (
        run_gateway(tmp_path, backends, backend_tls=other_files) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        other_ca_error = await expect_failure(channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=30))
        assert other_ca_error.code() is grpc.StatusCode.UNAVAILABLE
        assert "certificate verify failed" in (other_ca_error.details() or "").lower().replace("_", " ")
    await echo.stop()


async def test_shutdown_waits_for_running_calls(echo: Echo, tmp_path: Path) -> None:
    """No new calls are accepted; running calls go on until the drain timeout."""
    async with run_gateway(tmp_path, {"svc:1": [echo.address]}, drain=20.0) as (gateway, address):
        channel = grpc.aio.insecure_channel(address, options=channel_options())
        call = channel.stream_stream(f"{ECHO}Both")()
        await call.write(b"a")
        assert await call.read() == b"a"
        stop_task = asyncio.create_task(gateway.stop())
        await asyncio.sleep(0)
        await call.write(b"b")

        assert await call.read() == b"b"
        assert not stop_task.done()
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK
        await stop_task
        await channel.close()


async def test_shutdown_ends_calls_after_the_drain_timeout(echo: Echo, tmp_path: Path) -> None:
    """The calls get the status UNAVAILABLE."""
    async with run_gateway(tmp_path, {"svc:1": [echo.address]}, drain=0.05) as (gateway, address):
        channel = grpc.aio.insecure_channel(address, options=channel_options())
        call = channel.stream_stream(f"{ECHO}Both")()
        await call.write(b"a")
        await call.read()
        await gateway.stop()

        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert await call.details() == "the gateway is shutting down"
        await channel.close()


async def test_program_serves_reloads_and_stops(echo: Echo, tmp_path: Path) -> None:
    """The test covers the ready line, a call, the diag port, an invalid file with SIGHUP, and SIGTERM."""
    path = write_routes(tmp_path / "routes.yaml")
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "fleet.nodes", "gateway", "--routes", str(path), "--backend", f"svc:1={echo.address}"),
        *("--stream", f"{ECHO}Down"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert program.stdout is not None
    ready = json.loads(await program.stdout.readline())
    async with grpc.aio.insecure_channel(ready["grpc"], options=channel_options()) as channel:
        assert await channel.unary_unary(f"{ECHO}Unary")(b"a") == b"a"
        path.write_text("kind: [")
        program.send_signal(signal.SIGHUP)

        async def is_invalid() -> bool:
            return (await _fetch_json(ready["diag"], "/routes"))["valid"] is False

        await eventually(is_invalid)
        assert await channel.unary_unary(f"{ECHO}Unary")(b"b") == b"b"
        assert (await _fetch_json(ready["diag"], "/readyz"))["status"] == "ok"
    program.terminate()
    _, log = await program.communicate()

    assert program.returncode == 0
    assert b"the previous routes stay in effect" in log


async def _fetch_json(diag: str, path: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"http://{diag}{path}") as response:
        return await response.json()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing option '--routes'"),
        (["--routes", "/nowhere.yaml"], "/nowhere.yaml: cannot be read: No such file or directory"),
        (["--routes", "ROUTES", "--backend", "svc:1"], "is not NAME:PORT=HOST:PORT"),
        (["--routes", "ROUTES", "--backend", "svc:1=a"], "'a' is not host:port"),
        (["--routes", "ROUTES", "--backend", "svc:1=a:99999"], "host:port: the port is above 65535"),
        (["--routes", "ROUTES", "--stream", "svc.Watch"], "'svc.Watch' is not SERVICE/METHOD"),
        (["--routes", "ROUTES", "--descriptors", "ROUTES"], "ROUTES is not a descriptor set"),
        (["--routes", "ROUTES", "--tls-cert", "ROUTES"], "a server with TLS needs a certificate and its key"),
        (
            ["--routes", "ROUTES", "--backend-tls-cert", "ROUTES"],
            "set both --backend-tls-cert and --backend-tls-key, or neither",
        ),
        (
            ["--routes", "ROUTES", "--backend-tls-ca", "ROUTES"],
            "TLS: cannot use CA ROUTES: not a PEM certificate",
        ),
        (
            ["--routes", "ROUTES", "--tls-cert", "ROUTES", "--tls-key", "ROUTES"],
            "TLS: cannot use certificate ROUTES: not a PEM certificate",
        ),
        (["--routes", "ROUTES", "--probe-interval", "0s"], "must be greater than 0"),
        (["--routes", "ROUTES", "--backend-keepalive", "0s"], "'0s' must be greater than 0"),
        (["--routes", "ROUTES", "--headroom", "nan"], "'nan' is not a finite number"),
    ],
)
def test_failed_start_has_one_message(tmp_path: Path, arguments: list[str], message: str) -> None:
    """The exit code is 2, and the message names what to correct."""
    path = write_routes(tmp_path / "routes.yaml")
    arguments = [argument.replace("ROUTES", str(path)) for argument in arguments]

    invocation = CliRunner().invoke(gateway_node.command, arguments)

    assert invocation.exit_code == 2
    assert message.replace("ROUTES", str(path)) in invocation.output
