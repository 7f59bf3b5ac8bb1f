"""The policies of an auth or proxy: what it reads at its start, reports and accepts."""

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
from fleet.protocol.policies.env_policies import FILE_NAME, HTTP_CLOSE_VARIABLE, PolicySource, revision_of
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE, ServiceConfig
from fleet.transport.admin import AdminError, NodePoliciesClient, RejectedError, RevisionConflictError
from tests.fakes.plane import Plane, channel_to
from tests.fakes.waiting import eventually

_RECONNECT = (
    '{"grpc_client_lb_policy": {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}], '
    '"healthCheckConfig": {"serviceName": ""}}}'
)


def _value_sources(policies: Policies) -> dict[str, tuple[str, PolicySource]]:
    return {value.name: (value.text, value.source) for value in policies.effective_values}


def test_file_overrides_environment_and_flag_overrides_file(tmp_path: Path) -> None:
    """The data folder is created."""
    data = tmp_path / "auth-1"
    environment = {AUTH_TTL_VARIABLE: "1m", HTTP_CLOSE_VARIABLE: "true"}
    policies = node_policies.load("auth", data, environment)
    policies.accept({AUTH_TTL_VARIABLE: "30s"})
    reloaded, ttl = node_policies.load_with_ttl("auth", data, environment, None)
    assert ttl == 30
    assert _value_sources(reloaded)[AUTH_TTL_VARIABLE] == ("30s", PolicySource.FILE)
    assert _value_sources(reloaded)[HTTP_CLOSE_VARIABLE] == ("true", PolicySource.ENVIRONMENT)
    reloaded_with_flag, ttl = node_policies.load_with_ttl("auth", data, environment, 90.0)
    assert ttl == 90
    assert _value_sources(reloaded_with_flag)[AUTH_TTL_VARIABLE][1] is PolicySource.FLAG
    assert reloaded.merge_environment()[AUTH_TTL_VARIABLE] == "30s"


def test_invalid_file_or_variable_stops_the_start(tmp_path: Path) -> None:
    """The error names the file or the variable."""
    (tmp_path / FILE_NAME).write_text("PATH=x\n")
    with pytest.raises(lifecycle.NodeStartError, match=FILE_NAME):
        node_policies.load("auth", tmp_path, {})
    with pytest.raises(lifecycle.NodeStartError, match=PROXY_TTL_VARIABLE):
        node_policies.load_with_ttl("proxy", None, {PROXY_TTL_VARIABLE: "soon"}, None)
    (tmp_path / "file").write_text("")
    with pytest.raises(lifecycle.NodeStartError, match="--data"):
        node_policies.load("auth", tmp_path / "file", {})


async def _start_auth(
    plane: Plane, data: Path | None, restart: Callable[[float | None], None] | None
) -> Auth:
    policies = node_policies.load("auth", data, {AUTH_TTL_VARIABLE: "10m"})
    auth = Auth(
        plane.instance_flags("auth", "auth-1"), ServiceConfig(), policies=policies, request_restart=restart
    )
    await auth.start()
    plane.adopt(auth)
    return auth


async def test_accepted_values_are_reported_and_restart_is_requested_once(
    plane: Plane, tmp_path: Path
) -> None:
    """Accepted values are reported as the next values; one run restarts only once."""
    drain_seconds: list[float | None] = []
    auth = await _start_auth(plane, tmp_path, drain_seconds.append)
    async with channel_to(auth.instance.grpc_address) as channel:
        admin = NodePoliciesClient(channel)
        report_before = await read_policies(channel, timeout=30)
        assert report_before.revision == revision_of({})
        next_revision = await admin.set(
            report_before.revision, {RFD_VARIABLE: _RECONNECT, AUTH_TTL_VARIABLE: "30s"}
        )
        report = await read_policies(channel, timeout=30)
        assert report.revision == next_revision
        assert report.accepted_values[AUTH_TTL_VARIABLE] == "30s"
        ttl = report.policies[AUTH_TTL_VARIABLE]
        assert (ttl.current_value.text, ttl.current_value.source) == ("10m", PolicySource.ENVIRONMENT)
        assert (ttl.next_value.text, ttl.next_value.source) == ("30s", PolicySource.FILE)
        assert ttl.fallback_value == ttl.current_value
        with pytest.raises(RevisionConflictError, match="is out of date"):
            await admin.set(report_before.revision, {})
        with pytest.raises(RevisionConflictError, match="this run is"):
            await admin.restart("another", "x")
        for _ in range(2):
            await admin.restart(report.run_id, "to try", drain_seconds=1.5)
    assert drain_seconds == [1.5]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"LD_PRELOAD": "x.so"}, "not a policy that can be set"),
        ({PROXY_TTL_VARIABLE: "1m"}, "not of auth"),
        ({AUTH_TTL_VARIABLE: "soon"}, AUTH_TTL_VARIABLE),
        ({RFD_VARIABLE: "{}"}, RFD_VARIABLE),
        ({HTTP_CLOSE_VARIABLE: "true\nPATH=x"}, HTTP_CLOSE_VARIABLE),
        ({RFD_VARIABLE: "x" * 20_000}, "too long"),
    ],
)
async def test_invalid_values_are_refused_by_name(
    plane: Plane, tmp_path: Path, values: dict[str, str], message: str
) -> None:
    """No value is stored."""
    auth = await _start_auth(plane, tmp_path, lambda _drain: None)
    async with channel_to(auth.instance.grpc_address) as channel:
        with pytest.raises(RejectedError, match=message):
            await NodePoliciesClient(channel).set(revision_of({}), values)
    assert not (tmp_path / FILE_NAME).exists()


async def test_instance_without_data_folder_refuses_values(plane: Plane) -> None:
    """The report and the error name the flag --data."""
    auth = await _start_auth(plane, None, lambda _drain: None)
    async with channel_to(auth.instance.grpc_address) as channel:
        report = await read_policies(channel, timeout=30)
        assert "--data" in report.refusal_reason
        with pytest.raises(AdminError, match="--data"):
            await NodePoliciesClient(channel).set(report.revision, {})


async def test_restarted_program_keeps_its_pid_and_addresses(
    valkey_url: str, prefix: str, tmp_path: Path
) -> None:
    """The program runs with the accepted values and ends with SIGTERM."""
    data = tmp_path / "data"
    flags = ("--name", "auth-1", "--backend", valkey_url, "--backend-prefix", prefix, "--data", str(data))
    process = subprocess.Popen(  # noqa: ASYNC220 - no other task of the loop is delayed
        [sys.executable, "-m", "fleet.nodes", "auth", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, AUTH_TTL_VARIABLE: "20s"},
    )
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        async with channel_to(first["grpc"]) as channel:
            report_before = await read_policies(channel, timeout=30)
            admin = NodePoliciesClient(channel)
            await admin.set(report_before.revision, {AUTH_TTL_VARIABLE: "40s", RFD_VARIABLE: _RECONNECT})
            await admin.restart(report_before.run_id, "to run with it")

        async def reloaded() -> bool:
            async with channel_to(first["grpc"]) as channel:
                try:
                    report = await read_policies(channel, timeout=10)
                except SourceError:
                    return False
                ttl = report.policies[AUTH_TTL_VARIABLE].current_value
                return report.run_id != report_before.run_id and (ttl.text, ttl.source) == (
                    "40s",
                    PolicySource.FILE,
                )

        await eventually(reloaded)
        assert json.loads(process.stdout.readline()) == first
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
