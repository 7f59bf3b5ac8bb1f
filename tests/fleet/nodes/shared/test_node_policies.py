"""A node's policies: what it reads when it starts, what it reports, what it accepts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.policies import read_policies
from fleet.nodes.auth.server import Auth
from fleet.nodes.shared import lifecycle, node_policies
from fleet.nodes.shared.node_policies import Policies
from fleet.protocol.policies.env_policies import FILE_NAME, HTTP_CLOSE_VARIABLE, Source, revision_of
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE, ServiceConfig
from fleet.transport.admin import AdminError, NodePoliciesAdmin, RejectedError, RevisionConflict
from tests.fakes.plane import Plane, channel_to
from tests.fakes.waiting import eventually

_RECONNECT = (
    '{"grpc_client_lb_policy": {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}], '
    '"healthCheckConfig": {"serviceName": ""}}}'
)


def _sources(own: Policies) -> dict[str, tuple[str, Source]]:
    return {value.name: (value.text, value.source) for value in own.effective_values}


def test_file_overrides_the_environment(tmp_path: Path) -> None:
    """And the command line overrides both; the folder is made."""
    data = tmp_path / "auth-1"
    environment = {AUTH_TTL_VARIABLE: "1m", HTTP_CLOSE_VARIABLE: "true"}
    own = node_policies.load("auth", data, environment)
    own.accept({AUTH_TTL_VARIABLE: "30s"})
    again, ttl = node_policies.load_with_ttl("auth", data, environment, None)
    assert ttl == 30
    assert _sources(again)[AUTH_TTL_VARIABLE] == ("30s", Source.FILE)
    assert _sources(again)[HTTP_CLOSE_VARIABLE] == ("true", Source.ENVIRONMENT)
    flagged, ttl = node_policies.load_with_ttl("auth", data, environment, 90.0)
    assert ttl == 90
    assert _sources(flagged)[AUTH_TTL_VARIABLE][1] is Source.FLAG
    assert again.merge_environment()[AUTH_TTL_VARIABLE] == "30s"


def test_wrong_file_stops_the_start(tmp_path: Path) -> None:
    """It is named, as is a wrong variable."""
    (tmp_path / FILE_NAME).write_text("PATH=x\n")
    with pytest.raises(lifecycle.NodeStartError, match=FILE_NAME):
        node_policies.load("auth", tmp_path, {})
    with pytest.raises(lifecycle.NodeStartError, match=PROXY_TTL_VARIABLE):
        node_policies.load_with_ttl("proxy", None, {PROXY_TTL_VARIABLE: "soon"}, None)
    (tmp_path / "file").write_text("")
    with pytest.raises(lifecycle.NodeStartError, match="--data"):
        node_policies.load("auth", tmp_path / "file", {})


async def _auth(plane: Plane, data: Path | None, restart: Callable[[float | None], None] | None) -> Auth:
    own = node_policies.load("auth", data, {AUTH_TTL_VARIABLE: "10m"})
    made = Auth(plane.instance_flags("auth", "auth-1"), ServiceConfig(), own=own, restart=restart)
    await made.start()
    plane.adopt(made)
    return made


async def test_accept_report_restart(plane: Plane, tmp_path: Path) -> None:
    """What is accepted is reported as what comes after a restart; a restart is asked of one run once."""
    asked: list[float | None] = []
    auth = await _auth(plane, tmp_path, asked.append)
    async with channel_to(auth.instance.grpc_address) as channel:
        admin = NodePoliciesAdmin(channel)
        before = await read_policies(channel, timeout=30)
        assert before.revision == revision_of({})
        after = await admin.set(before.revision, {RFD_VARIABLE: _RECONNECT, AUTH_TTL_VARIABLE: "30s"})
        report = await read_policies(channel, timeout=30)
        assert report.revision == after
        assert report.accepted_values[AUTH_TTL_VARIABLE] == "30s"
        ttl = report.policies[AUTH_TTL_VARIABLE]
        assert (ttl.current_value.text, ttl.current_value.source) == ("10m", Source.ENVIRONMENT)
        assert (ttl.next_value.text, ttl.next_value.source) == ("30s", Source.FILE)
        assert ttl.fallback_value == ttl.current_value
        with pytest.raises(RevisionConflict, match="is out of date"):
            await admin.set(before.revision, {})
        with pytest.raises(RevisionConflict, match="this run is"):
            await admin.restart("another", "x")
        for _ in range(2):
            await admin.restart(report.run_id, "to try", drain=1.5)
    assert asked == [1.5]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"LD_PRELOAD": "x.so"}, "not a policy that can be set"),
        ({PROXY_TTL_VARIABLE: "1m"}, "not of auth"),
        ({AUTH_TTL_VARIABLE: "soon"}, AUTH_TTL_VARIABLE),
        ({RFD_VARIABLE: "{}"}, RFD_VARIABLE),
        ({HTTP_CLOSE_VARIABLE: "true\nPATH=x"}, HTTP_CLOSE_VARIABLE),
        ({RFD_VARIABLE: "x" * 20_000}, "too long"),
    ],
)
async def test_wrong_values_are_refused(
    plane: Plane, tmp_path: Path, values: dict[str, str], says: str
) -> None:
    """By name, and nothing is kept."""
    auth = await _auth(plane, tmp_path, lambda _drain: None)
    async with channel_to(auth.instance.grpc_address) as channel:
        with pytest.raises(RejectedError, match=says):
            await NodePoliciesAdmin(channel).set(revision_of({}), values)
    assert not (tmp_path / FILE_NAME).exists()


async def test_node_without_a_folder(plane: Plane) -> None:
    """It says why it accepts nothing, and accepts nothing."""
    auth = await _auth(plane, None, lambda _drain: None)
    async with channel_to(auth.instance.grpc_address) as channel:
        report = await read_policies(channel, timeout=30)
        assert "--data" in report.refusal_reason
        with pytest.raises(AdminError, match="--data"):
            await NodePoliciesAdmin(channel).set(report.revision, {})


async def test_program_restarts_itself(valkey_url: str, prefix: str, tmp_path: Path) -> None:
    """The same process id at the same addresses, running with what it accepted; then it ends when told."""
    data = tmp_path / "data"
    flags = ("--name", "auth-1", "--backend", valkey_url, "--backend-prefix", prefix, "--data", str(data))
    process = subprocess.Popen(  # noqa: ASYNC220 - there is nothing beside it to hold up
        [sys.executable, "-m", "fleet.nodes", "auth", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, AUTH_TTL_VARIABLE: "20s"},
    )
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        async with channel_to(first["grpc"]) as channel:
            before = await read_policies(channel, timeout=30)
            admin = NodePoliciesAdmin(channel)
            await admin.set(before.revision, {AUTH_TTL_VARIABLE: "40s", RFD_VARIABLE: _RECONNECT})
            await admin.restart(before.run_id, "to run with it")

        async def again() -> bool:
            async with channel_to(first["grpc"]) as channel:
                try:
                    report = await read_policies(channel, timeout=10)
                except SourceError:
                    return False
                ttl = report.policies[AUTH_TTL_VARIABLE].current_value
                return report.run_id != before.run_id and (ttl.text, ttl.source) == ("40s", Source.FILE)

        await eventually(again)
        assert json.loads(process.stdout.readline()) == first
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
