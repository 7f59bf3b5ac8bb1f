"""What a gateway bears of its backends, and how often it pings them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from typing_extensions import override

from fleet.nodes.gateway.server import Gateway, GatewayFlags
from fleet.transport.channels import channel_options, server_options
from tests.fakes.echoing import gateway_before, write_routes

#: Bytes of a header list, as a gRPC client or server allows them.
_ALLOWED = [("grpc.max_metadata_size", 1 << 21), ("grpc.absolute_max_metadata_size", 1 << 21)]


class Verbose(grpc.GenericRpcHandler):
    """Fails every call with so many bytes of details."""

    def __init__(self, size: int) -> None:
        self._size = size

    @override
    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._fail)

    async def _fail(self, request: bytes, context: Any) -> bytes:
        context.set_trailing_metadata((("grpc-status-details-bin", bytes(self._size)),))
        await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
        raise AssertionError("unreachable: abort raises")


@pytest.fixture
async def verbose() -> AsyncIterator[str]:
    """A backend whose trailers are longer than what callers may send."""
    server = grpc.aio.server(options=[*server_options(), *_ALLOWED])
    server.add_generic_rpc_handlers((Verbose(200_000),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_long_details_of_a_status_pass(verbose: str, tmp_path: Path) -> None:
    """The caller gets the backend's status, whole, and the next call goes over the same connection."""
    async with (
        gateway_before(tmp_path, {"svc:1": [verbose]}) as (_, address),
        grpc.aio.insecure_channel(address, options=[*channel_options(), *_ALLOWED]) as channel,
    ):
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/a.B/C")(b"", timeout=60)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            assert caught.value.details() == "no such thing"
            trailers = dict(caught.value.trailing_metadata())
            assert len(trailers["grpc-status-details-bin"]) == 200_000


async def _ping_options(folder: Path, **flags: Any) -> tuple[float, float]:
    gateway = Gateway(GatewayFlags(write_routes(folder / "routes.yaml"), **flags))
    options = gateway.backends._options
    await gateway.backends.close()
    return options.ping_after, options.ping_without_data


async def test_pings_of_backends(tmp_path: Path) -> None:
    """By default no more than one in 5 minutes without data; the flag says so and no other one."""
    assert await _ping_options(tmp_path) == (10.0, 310.0)
    assert await _ping_options(tmp_path, backend_keepalive=3.0) == (3.0, 0.0)
