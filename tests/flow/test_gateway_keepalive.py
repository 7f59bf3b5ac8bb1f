"""The gateway's pings to a stock grpc-go server, which ends connections that ping too often (`too_many_pings`)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.wrappers_pb2 import BytesValue

from fleet.transport.channels import channel_options
from tests.fakes import go_echo
from tests.fakes.echoing import run_gateway
from tests.fakes.programs import skip_without

pytestmark = [pytest.mark.slow]

#: No probe answers in between: data would permit another ping.
_NO_PROBES = 3600.0
#: Pings every 10 s, without regard to data, were punished after 40 s. Seconds.
_OBSERVED = 60.0


async def _open(channel: grpc.aio.Channel) -> Any:
    call: Any = channel.stream_stream("/refloat.test.Any/Echo")()
    await _echo(call, b"first")
    return call


async def _echo(call: Any, value: bytes) -> None:
    message = BytesValue(value=value).SerializeToString()
    await call.write(message)
    assert await call.read() == message


async def test_idle_stream_to_a_stock_server(tmp_path: Path) -> None:
    """By default the server accepts all pings; a gateway configured to ping each second loses its connection."""
    skip_without(go_echo.missing_reason())
    folders = [tmp_path / name for name in ("default", "eager")]
    for folder in folders:
        folder.mkdir()
    with go_echo.serving(tmp_path) as backend:
        backends = {"svc:1": [backend]}
        async with (
            run_gateway(folders[0], backends, probe_interval=_NO_PROBES) as (_, default),
            run_gateway(folders[1], backends, probe_interval=_NO_PROBES, backend_keepalive=1.0) as (
                _,
                eager,
            ),
            grpc.aio.insecure_channel(default, options=channel_options()) as to_default,
            grpc.aio.insecure_channel(eager, options=channel_options()) as to_eager,
        ):
            idle, cut = await _open(to_default), await _open(to_eager)

            assert await cut.code() is grpc.StatusCode.UNAVAILABLE
            assert "too_many_pings" in await cut.details()
            await asyncio.wait({code_task := asyncio.ensure_future(idle.code())}, timeout=_OBSERVED)
            assert not code_task.done(), await idle.details()
            await _echo(idle, b"last")
            await idle.done_writing()
            assert await code_task is grpc.StatusCode.OK
