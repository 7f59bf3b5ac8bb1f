"""Agents of a real fleet leave a sick auth by themselves, directly and through proxies: RFD 226, "Auth Reconnects"."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fleet.protocol.service_config import RFD_VARIABLE
from tests.fakes.waiting import eventually_sync
from tests.flow.test_fleet_up import Fleet, end

POLICY = {
    "grpc_client_lb_policy": {
        "loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}],
        "healthCheckConfig": {"serviceName": ""},
    }
}
SHAPE = [
    "--auths",
    "2",
    "--proxies",
    "2",
    "--agents",
    "6",
    "--announce-ttl",
    "6s",
    "--agent-announce-ttl",
    "8s",
]
#: Agents find a frozen auth dead after three of these.
KEEP_ALIVE = ["--keep-alive-interval", "2s"]


@pytest.fixture(scope="module", params=["direct", "proxy"])
def fleet(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """A fleet whose auths ask for mode reconnect."""
    home = tmp_path_factory.mktemp("home")
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "fleet.cli",
            "fleet",
            "up",
            "--json",
            *SHAPE,
            *KEEP_ALIVE,
            "--auth-via",
            request.param,
        ],
        env={**os.environ, "REFLOAT_HOME": str(home), RFD_VARIABLE: json.dumps(POLICY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the fleet did not start: {process.wait()}"
    made = Fleet(home, process, json.loads(line))
    yield made
    end(made)


def agents_at(fleet: Fleet, auth: str) -> int:
    """How many agents heartbeat at an auth, by its own metric; -1 when it does not answer."""
    metrics = fleet.metrics(auth)
    for line in metrics.splitlines():
        if line.startswith('teleport_connected_resources{type="node"}'):
            return int(float(line.split()[-1]))
    return -1


def test_agents_leave_an_auth_that_lost_its_backend(fleet: Fleet) -> None:
    """It says NOT_SERVING and goes on answering: soon the other has them all, and afterwards they stay there."""
    eventually_sync(fleet.whole)
    eventually_sync(lambda: agents_at(fleet, "auth-1") + agents_at(fleet, "auth-2") >= 6)
    fleet.do("cut-backend", "auth-1")
    eventually_sync(lambda: agents_at(fleet, "auth-2") == 6)
    fleet.do("restore-backend", "auth-1")
    eventually_sync(fleet.whole)
    assert agents_at(fleet, "auth-2") == 6


def test_agents_leave_a_frozen_auth(fleet: Fleet) -> None:
    """It says nothing at all: pings find it dead, and agents connect anew."""
    eventually_sync(fleet.whole)
    fleet.do("freeze", "auth-2")
    eventually_sync(lambda: agents_at(fleet, "auth-1") == 6)
    fleet.do("thaw", "auth-2")
    eventually_sync(fleet.whole)
