"""A fleet with mutual TLS: only agents and consoles with keys of its own CA can connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from fleet.processes import children
from fleet.transport import channels
from fleet.transport.tls import TLSFiles
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes.waiting import eventually, eventually_sync
from tests.flow.producers import Pages, produced
from tests.flow.transfers import site
from tests.meta.house import ROOT

_REFLOAT = [sys.executable, "-m", "fleet.cli"]
_SHAPE = ["--auths", "1", "--proxies", "1", "--agents", "4", "--no-forwarder", "--agent-announce-ttl", "4s"]
PATIENCE = 120.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the fleet of all tests here keeps its keys."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def fleet(home: Path) -> Iterator[dict[str, Any]]:
    """What `refloat fleet up --tls --json` says when all are ready; its agents expose a web site."""
    with site() as web:
        process = subprocess.Popen(
            [*_REFLOAT, "fleet", "up", "--tls", "--json", "--service", f"web={web}", *_SHAPE],
            env={**os.environ, "REFLOAT_HOME": str(home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        with process.stdout:
            try:
                yield json.loads(process.stdout.readline())
            finally:
                children.stop([process], grace=20.0)


def _tls_files(ready: dict[str, Any]) -> TLSFiles:
    files = {name: Path(path) for name, path in ready["console"].items()}
    return TLSFiles(files["REFLOAT_TLS_CERT"], files["REFLOAT_TLS_KEY"], files["REFLOAT_TLS_CA"])


async def test_fleet_with_tls_is_read_with_the_consoles_keys(fleet: dict[str, Any]) -> None:
    """All agents are listed by the auth and have a tunnel; the keys are their owner's alone."""
    keys = _tls_files(fleet)
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


async def test_fleet_with_tls_refuses_clients_without_certificate(fleet: dict[str, Any]) -> None:
    """A client without TLS and a client without a certificate are refused."""
    ca = _tls_files(fleet).authority
    for stranger in (TLSFiles(), TLSFiles(authority=ca)):
        async with channels.open_channel(f"dns:///{fleet['auths'][0]}", stranger) as channel:
            call = fleet_pb2_grpc.AgentFeedStub(channel).ListAgents(fleet_pb2.ListAgentsRequest(), timeout=60)
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await call
            assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE


def test_gateway_reports_valid_certificates(home: Path, fleet: dict[str, Any]) -> None:
    """The status has the moment of the last reload."""
    output = subprocess.run(
        [*_REFLOAT, "fleet", "ps", "--json", "--home", str(home)], cwd=ROOT, check=True, capture_output=True
    )
    diag = next(row["diag"] for row in json.loads(output.stdout) if row["role"] == "gateway")

    def pages() -> Iterator[str]:
        with urllib.request.urlopen(f"http://{diag}/metrics", timeout=PATIENCE) as answer:
            yield answer.read().decode()

    produced(
        Pages(pages),
        metrics=(
            "refloat_gateway_certificates_valid",
            "refloat_gateway_certificates_loaded_timestamp_seconds",
        ),
    )


def test_connect_requires_the_keys_of_the_fleet(fleet: dict[str, Any], home: Path) -> None:
    """With the fleet's own keys it connects; without a certificate, or with an agent's, it is told why not."""

    def get(*flags: str) -> subprocess.CompletedProcess[bytes]:
        argv = [*_REFLOAT, "connect", *flags, "--home", str(home), "web.agent-1"]
        http_request = b"GET /x HTTP/1.0\r\n\r\n"
        return subprocess.run(
            argv, input=http_request, capture_output=True, cwd=ROOT, timeout=PATIENCE, check=False
        )

    eventually_sync(lambda: get().stdout.endswith(b"page /x\n"), seconds=PATIENCE)
    keys = Path(fleet["console"]["REFLOAT_TLS_CA"]).parent
    at = ("--proxy", fleet["connect"][0], "--tls-ca", str(keys / "ca.crt"))
    process = get(*at)
    assert process.returncode == 2
    assert process.stderr == b"refloat: authentication required: send a client certificate of this fleet\n"
    process = get(*at, "--tls-cert", str(keys / "agents-1.crt"), "--tls-key", str(keys / "agents-1.key"))
    assert process.returncode == 2
    assert b"an agent's certificate" in process.stderr
