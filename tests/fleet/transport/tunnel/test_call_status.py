"""Status of a call that the server ends while the client writes."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from fleet.transport.tunnel.call_status import CallStatus

_CALLS = 50


async def test_reason_of_the_server_survives_a_failed_write() -> None:
    """A server that ends each call at once, and a client that writes meanwhile, as in grpc/grpc#36066."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("t", {"R": grpc.stream_stream_rpc_method_handler(_refuse)}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    failed_write_count = 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        open_call: Any = channel.stream_stream("/t/R")
        for _ in range(_CALLS):
            call = open_call()
            status = CallStatus(call)
            write_task = asyncio.create_task(_write(call))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.read()
            failed_write_count += await write_task
            assert status.describe(caught.value) == "not here"
    await server.stop(0)
    assert failed_write_count, "without a failed write this test shows nothing"


async def test_status_without_details_is_its_code() -> None:
    """A server that cannot be reached, and one that gives no details."""
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        call: Any = channel.stream_stream("/t/R")()
        status = CallStatus(call)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert "127.0.0.1:1" in status.describe(caught.value)
    other_error = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details=""
    )
    other_call: Any = _SilentCall()
    assert CallStatus(other_call).describe(other_error) == "UNAVAILABLE"


class _SilentCall:
    """A call whose callbacks have not run."""

    def add_done_callback(self, _: object) -> None:
        pass


async def _refuse(_: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not here")


async def _write(call: Any) -> bool:
    """Write until the call ends; return whether a write failed with the status that gRPC invents."""
    try:
        for _ in range(50):
            await call.write(bytes(1000))
    except grpc.aio.AioRpcError:
        return True
    except asyncio.InvalidStateError:
        pass
    return False
