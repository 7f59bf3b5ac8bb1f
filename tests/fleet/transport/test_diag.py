"""The diagnostics port: status codes and bodies."""

from __future__ import annotations

import os

import pytest
from aiohttp.test_utils import TestClient, TestServer

from fleet.protocol.destination.instance_status import EMPTY_STATUS, InstanceStatus, from_headers
from fleet.transport import diag
from fleet.transport.declared_status import DeclaredStatus
from fleet.transport.process import ProcessHealth


@pytest.mark.parametrize(
    ("steps", "code", "body"),
    [
        ("", 400, "teleport is starting and hasn't joined the cluster yet"),
        ("+", 200, "ok"),
        ("+-", 503, "teleport is in a degraded state, check logs for details"),
        ("+-+", 400, "teleport is recovering from a degraded state, check logs for details"),
    ],
)
async def test_readyz(steps: str, code: int, body: str) -> None:
    """Teleport's codes and texts; /healthz stays 200; the metric has the state's number."""
    process = ProcessHealth(tick=1.0)
    process.register("auth")
    for step in steps:
        if step == "+":
            process.record_success("auth", 0.0)
        else:
            process.record_failure("auth")
    registry = diag.create_registry(process)
    async with TestClient(TestServer(diag.create_app(process, registry))) as client:
        response = await client.get("/readyz")
        assert (response.status, await response.json()) == (code, {"status": body, "pid": os.getpid()})
        assert (await client.get("/healthz")).status == 200
        metrics = await (await client.get("/metrics")).text()
    assert f"process_state {float(process.state)}" in metrics.splitlines()
    assert "teleport_build_info{" in metrics


async def test_readyz_has_the_declared_status_in_headers() -> None:
    """Code and body stay those of Teleport."""
    process, declared_status = ProcessHealth(tick=1.0), DeclaredStatus()
    process.record_success("auth", 0.0)
    app = diag.create_app(process, diag.create_registry(process), declared_status)
    async with TestClient(TestServer(app)) as client:
        assert from_headers((await client.get("/readyz")).headers.items()) == EMPTY_STATUS
        declared_status.degrade("busy")
        declared_status.drain("kernel update")
        response = await client.get("/readyz")
        assert response.status == 200
        assert from_headers(response.headers.items()) == InstanceStatus("busy", "kernel update")
