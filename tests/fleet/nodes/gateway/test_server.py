"""Calls through the gateway, over real gRPC: of every kind, by host and method, whole."""

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
from tests.fakes.echoing import ECHO, Echo, gateway_before, route, write_routes
from tests.fakes.waiting import eventually


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    backend = await Echo().start()
    yield backend
    await backend.stop()


@pytest.fixture
async def channel(echo: Echo, tmp_path: Path) -> AsyncIterator[grpc.aio.Channel]:
    """Through a gateway with one rule for all."""
    async with (
        gateway_before(tmp_path, {"svc:1": [echo.address]}) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        yield channel


async def failure(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error: grpc.aio.AioRpcError = caught.value
    return error


async def test_every_kind_of_call(channel: grpc.aio.Channel) -> None:
    """Nobody told the gateway which is which."""

    async def three() -> AsyncIterator[bytes]:
        for one in (b"a", b"b", b"c"):
            yield one

    assert await channel.unary_unary(f"{ECHO}Unary")(b"abc") == b"abc"
    assert await channel.stream_unary(f"{ECHO}Up")(three()) == b"abc"
    assert [one async for one in channel.unary_stream(f"{ECHO}Down")(b"abc")] == [b"a", b"b", b"c"]
    assert [one async for one in channel.stream_stream(f"{ECHO}Both")(three())] == [b"a", b"b", b"c"]
    assert await channel.unary_unary(f"{ECHO}Unary")(b"") == b""


async def test_stream_goes_both_ways_in_turns(channel: grpc.aio.Channel) -> None:
    """Each message arrives before the next is sent: nothing waits for an end."""
    call = channel.stream_stream(f"{ECHO}Both")()
    for one in (b"first", b"x" * 300_000, b"last"):
        await call.write(one)
        assert await call.read() == one
    await call.done_writing()

    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_metadata_and_trailers_pass_whole(channel: grpc.aio.Channel, echo: Echo) -> None:
    """Binary ones, repeated ones, and what belongs to the call: user agent and deadline."""
    sent = (("x-bin", bytes(range(256))), ("x-twice", "1"), ("x-twice", "2"), ("authorization", "secret"))
    call = channel.unary_unary(f"{ECHO}Unary")(b"a", metadata=sent, timeout=60)
    await call

    assert [pair for pair in await call.trailing_metadata() if pair[0] == "x-bin"] == [sent[0]]
    assert [value for key, value in await call.trailing_metadata() if key == "x-twice"] == ["1", "2"]
    assert dict(await call.initial_metadata()) == {"x-head": "Unary"}
    _, metadata, left = echo.calls[-1]
    assert dict(metadata)["authorization"] == "secret"
    assert "grpc-python-asyncio" in dict(metadata)["user-agent"]
    assert left is not None
    assert 0 < left <= 60


async def test_status_and_details_pass_whole(channel: grpc.aio.Channel) -> None:
    """Words of any script, and rich details in trailers."""
    details = ("grpc-status-details-bin", b"\x08\x03\xff")
    error = await failure(
        channel.unary_unary(f"{ECHO}Unary")(b"", metadata=(("x-code", "NOT_FOUND"), ("x-d-bin", details[1])))
    )

    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert error.details() == "wörds, with spaces: 100 %"
    assert dict(error.trailing_metadata())["x-d-bin"] == details[1]


@pytest.mark.parametrize("size", [70_000, 3_000_000])
async def test_large_messages(channel: grpc.aio.Channel, size: int) -> None:
    """More than a frame, more than every window, compressed or not."""
    body = bytes(range(256)) * (size // 256)

    assert await channel.unary_unary(f"{ECHO}Unary")(body) == body
    assert await channel.unary_unary(f"{ECHO}Unary")(body, compression=grpc.Compression.Gzip) == body


async def test_message_that_is_too_long(echo: Echo, tmp_path: Path) -> None:
    """Refused either way, whatever the programs would take."""
    async with (
        gateway_before(tmp_path, {"svc:1": [echo.address]}, max_message=1000) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        error = await failure(channel.unary_unary(f"{ECHO}Unary")(b"x" * 1001))
        assert await channel.unary_unary(f"{ECHO}Unary")(b"x" * 1000)

    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.details() == "the request has a message larger than 1000 bytes"


async def test_slow_reader_stops_the_sender(channel: grpc.aio.Channel) -> None:
    """Windows hold end to end: what is not read is not gathered in the gateway; then all arrives."""
    call = channel.stream_stream(f"{ECHO}Both")()

    writing = asyncio.ensure_future(call.write(b"x" * 100_000))
    written = 1
    while (await asyncio.wait([writing], timeout=0.5))[0]:
        assert written < 1000, "100 MB are on their way to somebody who reads nothing"
        writing = asyncio.ensure_future(call.write(b"x" * 100_000))
        written += 1

    async def finish() -> None:
        await writing
        await call.done_writing()

    finishing = asyncio.create_task(finish())
    got = [len(one) async for one in call]
    assert got == [100_000] * written
    await finishing


async def test_deadline_and_cancel_reach_the_backend(channel: grpc.aio.Channel, echo: Echo) -> None:
    """Whoever gives up ends the call everywhere."""
    for seconds in (0.2, 2.0, 20.0):
        error = await failure(channel.unary_unary(f"{ECHO}Hang")(b"", timeout=seconds))
        if echo.calls:  # it came so far, on a busy machine too
            break
    await eventually(lambda: echo.over == 1)
    call = channel.stream_stream(f"{ECHO}Both")()
    await call.write(b"a")
    await call.read()
    call.cancel()

    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: echo.over == 2)


async def test_caller_that_vanishes_ends_its_calls(echo: Echo, tmp_path: Path) -> None:
    """Its connection is lost: its calls are cancelled at the backend."""
    async with gateway_before(tmp_path, {"svc:1": [echo.address]}) as (gateway, address):
        channel = grpc.aio.insecure_channel(address, options=channel_options())
        call = channel.stream_stream(f"{ECHO}Both")()
        await call.write(b"a")
        await call.read()
        await channel.close()

        await eventually(lambda: echo.over == 1)
        await eventually(lambda: gateway.listener.calls == 0)


async def test_routes_by_host_service_and_method(echo: Echo, tmp_path: Path) -> None:
    """The host is the call's authority; no rule, no backend, no address: each is said."""
    other = await Echo().start()
    routes = (
        route({"matches": [{"method": {"service": "refloat.test.Echo", "method": "Down"}}]}, name="other"),
        route({"backendRefs": [{"name": "other", "port": 1}]}, name="host", hosts=["*.example.com"]),
        route({"backendRefs": []}, name="none", hosts=["none.example.com"]),
        route({"backendRefs": [{"name": "lost", "port": 1}]}, name="lost", hosts=["lost.example.com"]),
    )
    backends = {"svc:1": [echo.address], "other:1": [other.address], "lost:1": []}
    async with gateway_before(tmp_path, backends, *routes) as (gateway, address):

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
        assert (len(other.calls), len(echo.calls)) == (1, 0)
        assert await call("b.org", "Down") == "OK"
        assert (len(other.calls), len(echo.calls)) == (1, 1)
        assert await call("b.org") == f"UNIMPLEMENTED: no route matches {ECHO}Unary at b.org"
        assert await call("none.example.com") == "UNAVAILABLE: no backend of none/0 accepts calls"
        assert await call("lost.example.com") == "UNAVAILABLE: no backend of lost/0 accepts calls"
        assert gateway.backends.list_unresolved() == ["lost:1"]
    await other.stop()


async def test_weights_share_calls(echo: Echo, tmp_path: Path) -> None:
    """A weight of 0 gets none."""
    other = await Echo().start()
    refs = [{"name": "svc", "port": 1, "weight": 0}, {"name": "other", "port": 1, "weight": 5}]
    backends = {"svc:1": [echo.address], "other:1": [other.address]}
    async with (
        gateway_before(tmp_path, backends, route({"backendRefs": refs})) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        for _ in range(5):
            await channel.unary_unary(f"{ECHO}Unary")(b"")
    await other.stop()

    assert (len(echo.calls), len(other.calls)) == (0, 5)


@pytest.mark.parametrize(
    ("flags", "share"), [({}, 1.0), ({"picking_settings": picker.Settings(guard=3)}, 0.6)]
)
async def test_last_backend_that_is_well_may_take_all(
    echo: Echo, tmp_path: Path, flags: dict[str, Any], share: float
) -> None:
    """Four of five are dead: calls go to them only when it is said that the fifth cannot take so much."""
    dead = [f"127.0.0.1:{port}" for port in (1, 2, 3, 4)]
    async with gateway_before(tmp_path, {"svc:1": [echo.address, *dead]}, **flags) as (gateway, _):

        def all_known() -> bool:
            known = [one["health"] for one in gateway.backends.describe()]
            return sorted(known) == ["healthy", *["unhealthy"] * 4]

        await eventually(all_known)
        (rule,) = gateway.listener.describe()

    assert rule["backends"]["svc:1"][echo.address] == pytest.approx(share)


def _tls(folder: Path, name: str = "node") -> TLSFiles:
    at = datetime.datetime.now(UTC)
    ca = certificate_authority.ensure_authority(folder, now=at)
    pair = certificate_authority.issue(ca, name, role="proxy", now=at)
    return TLSFiles(pair.certificate, pair.key, ca.certificate, SERVER_NAME)


async def test_mutual_tls_on_both_sides(tmp_path: Path) -> None:
    """Certificates are demanded of callers and shown to backends; a stranger gets nowhere."""
    ours, theirs = _tls(tmp_path / "ours"), _tls(tmp_path / "theirs")
    echo = await Echo().start(ours)
    backends = {"svc:1": [echo.address]}
    async with gateway_before(tmp_path, backends, tls=ours, backend_tls=ours) as (_, address):
        async with open_channel(address, ours) as channel:
            assert await channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=30) == b"a"
        async with open_channel(address, TLSFiles(None, None, ours.authority, ours.server_name)) as channel:
            nameless = await failure(channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=30))
        assert nameless.code() is grpc.StatusCode.UNAVAILABLE

    async with (
        gateway_before(tmp_path, backends, backend_tls=theirs) as (_, address),
        grpc.aio.insecure_channel(address, options=channel_options()) as channel,
    ):
        stranger = await failure(channel.unary_unary(f"{ECHO}Unary")(b"a", timeout=30))
        assert stranger.code() is grpc.StatusCode.UNAVAILABLE
        assert "certificate verify failed" in (stranger.details() or "").lower().replace("_", " ")
    await echo.stop()


async def test_end_waits_for_calls(echo: Echo, tmp_path: Path) -> None:
    """No new ones; those there are go on until the drain is over, and are then told."""
    async with gateway_before(tmp_path, {"svc:1": [echo.address]}, drain=20.0) as (gateway, address):
        channel = grpc.aio.insecure_channel(address, options=channel_options())
        call = channel.stream_stream(f"{ECHO}Both")()
        await call.write(b"a")
        assert await call.read() == b"a"
        stopping = asyncio.create_task(gateway.stop())
        await asyncio.sleep(0)
        await call.write(b"b")

        assert await call.read() == b"b"
        assert not stopping.done()
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK
        await stopping
        await channel.close()


async def test_end_cuts_calls_that_stay(echo: Echo, tmp_path: Path) -> None:
    """With a status."""
    async with gateway_before(tmp_path, {"svc:1": [echo.address]}, drain=0.05) as (gateway, address):
        channel = grpc.aio.insecure_channel(address, options=channel_options())
        call = channel.stream_stream(f"{ECHO}Both")()
        await call.write(b"a")
        await call.read()
        await gateway.stop()

        assert await call.code() is grpc.StatusCode.UNAVAILABLE
        assert await call.details() == "the gateway is shutting down"
        await channel.close()


async def test_program_from_start_to_end(echo: Echo, tmp_path: Path) -> None:
    """The ready line, a call, the diag port, a bad file that is said on the log, SIGHUP, SIGTERM."""
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

        async def told() -> bool:
            return (await _asked(ready["diag"], "/routes"))["valid"] is False

        await eventually(told)
        assert await channel.unary_unary(f"{ECHO}Unary")(b"b") == b"b"
        assert (await _asked(ready["diag"], "/readyz"))["status"] == "ok"
    program.terminate()
    _, log = await program.communicate()

    assert program.returncode == 0
    assert b"the previous routes stay in effect" in log


async def _asked(diag: str, path: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"http://{diag}{path}") as answer:
        return await answer.json()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Missing option '--routes'"),
        (["--routes", "/nowhere.yaml"], "/nowhere.yaml: cannot be read: No such file or directory"),
        (["--routes", "ROUTES", "--backend", "svc:1"], "is not NAME:PORT=HOST:PORT"),
        (["--routes", "ROUTES", "--backend", "svc:1=a"], "'a' is not host:port"),
        (["--routes", "ROUTES", "--stream", "svc.Watch"], "'svc.Watch' is not SERVICE/METHOD"),
        (["--routes", "ROUTES", "--descriptors", "ROUTES"], "ROUTES is not a descriptor set"),
        (["--routes", "ROUTES", "--tls-cert", "ROUTES"], "a server with TLS needs a certificate and a key"),
        (
            ["--routes", "ROUTES", "--backend-tls-cert", "ROUTES"],
            "set both the certificate and its key, or neither",
        ),
        (["--routes", "ROUTES", "--backend-tls-ca", "ROUTES"], "TLS: cannot use the CA ROUTES"),
        (["--routes", "ROUTES", "--probe-interval", "0s"], "must be greater than 0"),
        (["--routes", "ROUTES", "--backend-keepalive", "0s"], "'0s' must be greater than 0"),
        (["--routes", "ROUTES", "--headroom", "nan"], "'nan' is not a finite number"),
    ],
)
def test_start_that_fails_is_one_sentence(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    """Exit code 2, and what to mend."""
    path = write_routes(tmp_path / "routes.yaml")
    arguments = [one.replace("ROUTES", str(path)) for one in arguments]

    result = CliRunner().invoke(gateway_node.command, arguments)

    assert result.exit_code == 2
    assert sentence.replace("ROUTES", str(path)) in result.output
