"""The step that asks the diag ports of a Teleport cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from fleet.clusters.connection_test.api_steps import APIStepsState
from fleet.clusters.connection_test.teleport_health_steps import check_diag_ports, check_health
from fleet.clusters.test_report import StepVerdict
from fleet.monitoring.sources.presence import ListedInstance
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind, InstanceResource, ServingStatus
from tests.fakes.instances import FakeAuth

_AUTH = ListedInstance("a-uuid", InstanceKind.AUTH, InstanceResource("auth-1", ""))
_PROXY = ListedInstance("p-uuid", InstanceKind.PROXY, InstanceResource("proxy-1", ""))


class DiagPort:
    """A diag port with configurable status codes."""

    def __init__(self) -> None:
        self.readyz, self.metrics, self.address = 200, 200, ""

    async def respond(self, request: web.Request) -> web.Response:
        """Respond to /readyz or /metrics."""
        return web.Response(status=self.readyz if request.path == "/readyz" else self.metrics)


@pytest.fixture
async def port() -> AsyncIterator[DiagPort]:
    """A diag port that is ready."""
    port = DiagPort()
    app = web.Application()
    app.add_routes([web.get("/readyz", port.respond), web.get("/metrics", port.respond)])
    async with TestServer(app, host="127.0.0.1") as server:
        port.address = f"127.0.0.1:{server.port}"
        yield port


@pytest.fixture
def second_auth() -> Iterator[FakeAuth]:
    """Another auth than `auth`."""
    second_auth = FakeAuth("auth-2-id", "auth-2")
    yield second_auth
    second_auth.stop()


@pytest.fixture
async def state() -> AsyncIterator[APIStepsState]:
    """An auth that listed itself and a proxy."""
    connections = Connections()
    yield APIStepsState(connections, ["auth:3025"], instances=[_AUTH, _PROXY])
    await connections.close()


async def test_ready_instances_are_counted(state: APIStepsState, port: DiagPort) -> None:
    """By name or UUID."""
    state.diag_addresses = {"auth-1": port.address, "p-uuid": port.address}
    assert await check_diag_ports(state) == (StepVerdict.OK, "2 instances ready.", "")


async def test_cluster_without_diag_addresses_is_skipped(state: APIStepsState) -> None:
    finding = await check_diag_ports(state)
    assert finding.verdict is StepVerdict.SKIPPED
    assert "Enter the addresses" in finding.text


@pytest.mark.parametrize(
    ("readyz", "metrics", "verdict", "part_of_text"),
    [
        (503, 200, StepVerdict.WARNING, "it cannot write to its backend"),
        (400, 200, StepVerdict.WARNING, "/readyz responds with 400"),
        (200, 404, StepVerdict.WARNING, "no metrics: /metrics responds with 404"),
        (404, 404, StepVerdict.FAILED, "this is not the --diag-addr of Teleport"),
    ],
)
async def test_instance_that_is_not_ready(
    state: APIStepsState, port: DiagPort, readyz: int, metrics: int, verdict: StepVerdict, part_of_text: str
) -> None:
    """The text names it with its address."""
    port.readyz, port.metrics = readyz, metrics
    state.diag_addresses = {"auth-1": port.address}
    finding = await check_diag_ports(state)
    assert finding.verdict is verdict
    assert finding.text.startswith(f"auth-1 ({port.address}): ")
    assert part_of_text in finding.text
    assert finding.remedy


@pytest.mark.parametrize(
    ("status", "verdict", "text"),
    [
        (ServingStatus.SERVING, StepVerdict.OK, "2 auths ready."),
        (ServingStatus.SERVICE_UNKNOWN, StepVerdict.OK, "2 auths ready."),
        (ServingStatus.NOT_SERVING, StepVerdict.WARNING, "not ready, so its lists may be old. 1 auth ready."),
    ],
)
async def test_health_of_auths(
    state: APIStepsState,
    auth: FakeAuth,
    second_auth: FakeAuth,
    status: ServingStatus,
    verdict: StepVerdict,
    text: str,
) -> None:
    """Ready ones are asked first from then on; a version without gRPC health reports nothing."""
    auth.serving = status
    state.auths = [auth.address, second_auth.address]
    finding = await check_health(state)
    assert finding.verdict is verdict
    assert finding.text.endswith(text)
    assert (state.auths[0] == second_auth.address) is (status is ServingStatus.NOT_SERVING)


async def test_auth_that_does_not_respond_has_no_health(state: APIStepsState) -> None:
    state.auths = ["127.0.0.1:1"]
    finding = await check_health(state)
    assert finding.verdict is StepVerdict.FAILED
    assert finding.text.startswith("127.0.0.1:1: no health: unavailable")


async def test_names_of_no_instance(state: APIStepsState, port: DiagPort) -> None:
    """An entry that names no instance is a warning; the other entries are tested."""
    state.diag_addresses = {"auth-1": port.address, "auht-2": port.address}
    finding = await check_diag_ports(state)
    assert finding.verdict is StepVerdict.WARNING
    assert finding.text == "auht-2: no listed instance has this name or UUID. 1 instance ready."
