"""A fleet with mutual TLS: agents and console come in with the keys of its own CA, and nobody else does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fleet.processes import children
from fleet.transport import channels
from fleet.transport.channels import TLSFiles
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes.waiting import eventually

_SHAPE = ["--auths", "1", "--proxies", "1", "--agents", "4", "--no-faults", "--agent-announce-ttl", "4s"]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """What `refloat fleet up --tls --json` says when all are ready."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet.cli", "fleet", "up", "--tls", "--json", *_SHAPE],
        env={**os.environ, "REFLOAT_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    with process.stdout:
        yield json.loads(process.stdout.readline())
        children.stop([process], grace=20.0)


def _keys(said: dict[str, Any]) -> TLSFiles:
    files = {name: Path(path) for name, path in said["console"].items()}
    return TLSFiles(files["REFLOAT_TLS_CERT"], files["REFLOAT_TLS_KEY"], files["REFLOAT_TLS_CA"])


async def test_fleet_with_tls_is_read_with_the_consoles_keys(fleet: dict[str, Any]) -> None:
    """All agents are listed by the auth and have a tunnel; the keys are their owner's alone."""
    keys = _keys(fleet)
    assert keys.key is not None
    assert keys.key.stat().st_mode & 0o077 == 0
    async with (
        channels.open_channel(f"dns:///{fleet['auths'][0]}", keys) as auth,
        channels.open_channel(f"dns:///{fleet['proxies'][0]}", keys) as proxy,
    ):

        async def all_are_there() -> bool:
            agents = await fleet_pb2_grpc.AgentFeedStub(auth).ListAgents(fleet_pb2.ListAgentsRequest())
            tunnels = await fleet_pb2_grpc.TunnelFeedStub(proxy).ListTunnels(fleet_pb2.ListTunnelsRequest())
            return (len(agents.agents), len(tunnels.tunnels)) == (4, 4)

        await eventually(all_are_there)


async def test_fleet_with_tls_refuses_who_has_no_certificate(fleet: dict[str, Any]) -> None:
    """Neither a client without TLS, nor one that trusts the CA and shows nothing, is answered."""
    ca = _keys(fleet).authority
    for stranger in (TLSFiles(), TLSFiles(authority=ca)):
        async with channels.open_channel(f"dns:///{fleet['auths'][0]}", stranger) as channel:
            call = fleet_pb2_grpc.AgentFeedStub(channel).ListAgents(fleet_pb2.ListAgentsRequest(), timeout=60)
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await call
            assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE
