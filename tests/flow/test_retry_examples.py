"""The examples of docs/reference/retries.md are programs that run."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from typing_extensions import override

from fleet.transport.channels import server_options

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


class _FailingTwice(health_pb2_grpc.HealthServicer):
    """Responds to the third call; fails the first two."""

    call_count = 0

    @override
    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Any:
        self.call_count += 1
        if self.call_count < 3:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


@pytest.mark.parametrize(
    ("example", "more"), [("retry_aio.py", [str(EXAMPLES / "retry_route.yaml")]), ("retry_blocking.py", [])]
)
async def test_example_retries_the_call(example: str, more: list[str]) -> None:
    """The call succeeds on a server that fails twice."""
    health = _FailingTwice()
    server = grpc.aio.server(options=server_options())
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / example),
        f"127.0.0.1:{port}",
        *more,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parents[1])},
    )
    try:
        async with asyncio.timeout(240):
            output, _ = await program.communicate()
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
        await server.stop(None)

    assert output.decode() == "SERVING\n"
    assert health.call_count == 3
