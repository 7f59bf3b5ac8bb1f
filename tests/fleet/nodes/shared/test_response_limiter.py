"""Limits for large responses that callers do not read: their number and their time."""

from __future__ import annotations

import grpc
import grpc.aio

from fleet.nodes.shared.response_limiter import Context, ResponseLimiter
from fleet.protocol.retry.grpc_http2 import Status
from fleet.transport import channels
from tests.fakes.raw_calls import RawCall, call, deaf_connection
from tests.fakes.waiting import eventually

_METHOD = "/lists/List"
_RESPONSE = b"x" * 1_000_000


async def _serve(responses: ResponseLimiter) -> tuple[grpc.aio.Server, str]:
    async def response(_: bytes, context: Context) -> bytes:
        await responses.admit(context)
        return _RESPONSE

    handlers = {"List": grpc.unary_unary_rpc_method_handler(response)}
    server = grpc.aio.server(options=channels.server_options())
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("lists", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


def _refusal_statuses(calls: list[RawCall]) -> list[Status | None]:
    return [raw_call.end_future.result()[0] for raw_call in calls if raw_call.end_future.done()]


async def test_unread_responses_of_one_caller_are_limited() -> None:
    """Without a limit a small request would hold megabytes as long as its call is open."""
    server, address = await _serve(ResponseLimiter(limit_per_caller=3))
    stalled_connection = await deaf_connection(address)
    calls = [call(stalled_connection, _METHOD) for _ in range(10)]
    await eventually(lambda: len(_refusal_statuses(calls)) == 7)
    assert set(_refusal_statuses(calls)) == {Status.RESOURCE_EXHAUSTED}
    stalled_connection.close()
    await server.stop(0)


async def test_read_response_makes_room() -> None:
    """Lost connections make room as well."""
    server, address = await _serve(ResponseLimiter(limit_per_caller=1))
    async with channels.open_channel(address) as channel:
        listing = channel.unary_unary(_METHOD)
        for _ in range(3):
            assert await listing(b"") == _RESPONSE
        stalled_connection = await deaf_connection(address)
        unread_call, refused_call = call(stalled_connection, _METHOD), call(stalled_connection, _METHOD)
        await eventually(lambda: refused_call.end_future.done() or unread_call.end_future.done())
        stalled_connection.close()

        async def is_served() -> bool:
            try:
                return bool(await listing(b""))
            except grpc.aio.AioRpcError:
                return False

        await eventually(is_served)
    await server.stop(0)


async def test_unread_responses_of_all_callers_are_limited() -> None:
    """Many callers share one limit."""
    server, address = await _serve(ResponseLimiter(limit=2))
    stalled_connection = await deaf_connection(address)
    calls = [call(stalled_connection, _METHOD) for _ in range(3)]
    await eventually(lambda: len(_refusal_statuses(calls)) == 1)
    stalled_connection.close()
    await server.stop(0)


async def test_unread_response_is_dropped_after_the_time_limit() -> None:
    """The call ends and makes room."""
    server, address = await _serve(ResponseLimiter(limit_per_caller=1, read_within=0.2))
    stalled_connection = await deaf_connection(address)
    call(stalled_connection, _METHOD)
    async with channels.open_channel(address) as channel:

        async def is_served() -> bool:
            try:
                return bool(await channel.unary_unary(_METHOD)(b""))
            except grpc.aio.AioRpcError:
                return False

        await eventually(is_served)
    stalled_connection.close()
    await server.stop(0)
