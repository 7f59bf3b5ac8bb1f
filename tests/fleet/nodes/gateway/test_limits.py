"""Limits of the gateway for its backends, and how often it pings them."""

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
from tests.fakes.echoing import run_gateway, write_routes

#: Options that allow header lists of 2 MiB.
_LARGE_METADATA_OPTIONS = [("grpc.max_metadata_size", 1 << 21), ("grpc.absolute_max_metadata_size", 1 << 21)]


class VerboseHandler(grpc.GenericRpcHandler):
    """Fail every call with details of `size` bytes."""

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
async def verbose_address() -> AsyncIterator[str]:
    """Yield the address of a backend whose trailers are longer than a caller's headers may be."""
    server = grpc.aio.server(options=[*server_options(), *_LARGE_METADATA_OPTIONS])
    server.add_generic_rpc_handlers((VerboseHandler(200_000),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def test_long_status_details_are_forwarded(verbose_address: str, tmp_path: Path) -> None:
    """The caller gets the whole status of the backend, and the connection can be used again."""
    async with (
        run_gateway(tmp_path, {"svc:1": [verbose_address]}) as (_, address),
        grpc.aio.insecure_channel(address, options=[*channel_options(), *_LARGE_METADATA_OPTIONS]) as channel,
    ):
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/a.B/C")(b"", timeout=60)
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            assert caught.value.details() == "no such thing"
            trailers = dict(caught.value.trailing_metadata())
            assert len(trailers["grpc-status-details-bin"]) == 200_000


async def _read_ping_options(folder: Path, **flags: Any) -> tuple[float, float]:
    gateway = Gateway(GatewayFlags(write_routes(folder / "routes.yaml"), **flags))
    options = gateway.backends._options
    await gateway.backends.close()
    return options.ping_after, options.ping_interval_without_data


async def test_ping_intervals_follow_the_flag(tmp_path: Path) -> None:
    """The default is at most one ping in 5 minutes without data; only --backend-keepalive changes it."""
    assert await _read_ping_options(tmp_path) == (10.0, 310.0)
    assert await _read_ping_options(tmp_path, backend_keepalive=3.0) == (3.0, 0.0)
