"""Large answers that nobody reads: how many wait, and for how long."""

from __future__ import annotations

import grpc
import grpc.aio

from fleet.nodes.shared.response_limiter import Context, ResponseLimiter
from fleet.protocol.retry.grpc_http2 import Status
from fleet.transport import channels
from tests.fakes.raw_calls import RawCall, call, deaf_connection
from tests.fakes.waiting import eventually

_LIST = "/lists/List"
_ANSWER = b"x" * 1_000_000


async def _serve(answers: ResponseLimiter) -> tuple[grpc.aio.Server, str]:
    async def answer(_: bytes, context: Context) -> bytes:
        await answers.admit(context)
        return _ANSWER

    handlers = {"List": grpc.unary_unary_rpc_method_handler(answer)}
    server = grpc.aio.server(options=channels.server_options())
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("lists", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


def _refused(calls: list[RawCall]) -> list[Status | None]:
    return [each.ended.result()[0] for each in calls if each.ended.done()]


async def test_answers_of_one_caller_that_wait_are_bounded() -> None:
    """Else a question of a hundred bytes would cost megabytes for as long as its call is open."""
    server, address = await _serve(ResponseLimiter(limit_per_caller=3))
    deaf = await deaf_connection(address)
    calls = [call(deaf, _LIST) for _ in range(10)]
    await eventually(lambda: len(_refused(calls)) == 7)
    assert set(_refused(calls)) == {Status.RESOURCE_EXHAUSTED}
    deaf.close()
    await server.stop(0)


async def test_answer_that_is_read_makes_room() -> None:
    """So do those whose connection is gone."""
    server, address = await _serve(ResponseLimiter(limit_per_caller=1))
    async with channels.open_channel(address) as channel:
        listing = channel.unary_unary(_LIST)
        for _ in range(3):
            assert await listing(b"") == _ANSWER
        deaf = await deaf_connection(address)
        waiting, refused = call(deaf, _LIST), call(deaf, _LIST)
        await eventually(lambda: refused.ended.done() or waiting.ended.done())
        deaf.close()

        async def is_served() -> bool:
            try:
                return bool(await listing(b""))
            except grpc.aio.AioRpcError:
                return False

        await eventually(is_served)
    await server.stop(0)


async def test_answers_of_all_callers_are_bounded() -> None:
    """Callers are many."""
    server, address = await _serve(ResponseLimiter(limit=2))
    deaf = await deaf_connection(address)
    calls = [call(deaf, _LIST) for _ in range(3)]
    await eventually(lambda: len(_refused(calls)) == 1)
    deaf.close()
    await server.stop(0)


async def test_answer_that_is_not_read_in_time_is_given_up() -> None:
    """Its call ends, and there is room again."""
    server, address = await _serve(ResponseLimiter(limit_per_caller=1, read_within=0.2))
    deaf = await deaf_connection(address)
    call(deaf, _LIST)
    async with channels.open_channel(address) as channel:

        async def is_served() -> bool:
            try:
                return bool(await channel.unary_unary(_LIST)(b""))
            except grpc.aio.AioRpcError:
                return False

        await eventually(is_served)
    deaf.close()
    await server.stop(0)
