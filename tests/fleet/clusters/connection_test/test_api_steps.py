"""Steps with requests, against auths and proxies whose responses a test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2

from fleet.clusters.connection_test import api_steps
from fleet.clusters.connection_test.api_steps import APIStepsState
from fleet.clusters.test_report import StepVerdict
from fleet.transport.poll_connections import Connections
from fleet.wire import fleet_pb2
from tests.fakes.instances import FakeAuth, FakeProxy, agent_entry

_FAR = 4e9


@pytest.fixture
async def state(auth: FakeAuth, proxy: FakeProxy) -> AsyncIterator[APIStepsState]:
    """The state of a test that has connected to an auth which lists itself and a proxy."""
    auth.auths, auth.proxies = [auth.resource(_FAR)], [proxy.resource(_FAR)]
    connections = Connections()
    yield APIStepsState(connections, [auth.address])
    await connections.close()


async def test_an_auth_that_is_not_serving(state: APIStepsState, auth: FakeAuth) -> None:
    """A warning: it answers; its lists are still asked for."""
    auth.serving = health_pb2.HealthCheckResponse.NOT_SERVING

    finding = await api_steps.check_health_of_auths(state)

    assert finding.verdict is StepVerdict.WARNING
    assert finding.text == f"{auth.address}: it reports that it is not serving."
    assert "backend" in finding.remedy
    assert state.auths == [auth.address]


@pytest.mark.parametrize(
    ("error_code", "text_part", "remedy_part"),
    [
        (grpc.StatusCode.PERMISSION_DENIED, "does not allow Refloat to read the list of", "role console"),
        (grpc.StatusCode.UNAVAILABLE, "did not return the list of", "load of this auth"),
        (grpc.StatusCode.INTERNAL, "did not return the list of", "Read the log"),
    ],
)
async def test_an_api_that_fails(
    state: APIStepsState,
    auth: FakeAuth,
    error_code: grpc.StatusCode,
    text_part: str,
    remedy_part: str,
) -> None:
    """Of both lists: what happened, and what to do."""
    auth.error_code = error_code
    for step in (api_steps.list_instances_of_auth, api_steps.list_agents_of_auth):
        finding = await step(state)
        assert finding.verdict is StepVerdict.FAILED
        assert finding.text.startswith(f"{auth.address} {text_part}")
        assert remedy_part in finding.remedy


async def test_apis_that_another_kind_of_auth_does_not_have(state: APIStepsState, auth: FakeAuth) -> None:
    """Refloat shows the fleet without them, so they are warnings."""
    for step in (api_steps.read_networking_config, api_steps.read_policies_of_auth):
        finding = await step(state)
        assert finding.verdict is StepVerdict.WARNING
        assert finding.text.startswith(auth.address)
        assert "Refloat shows the fleet" in finding.remedy


async def test_counts_of_the_lists(state: APIStepsState, auth: FakeAuth, proxy: FakeProxy) -> None:
    """Instances, agents and tunnels."""
    auth.agents = lambda request: fleet_pb2.ListAgentsResponse(
        epoch="e", revision=1, full=True, agents=[agent_entry("a-id", auth.id), agent_entry("b-id", auth.id)]
    )
    proxy.tunnels = lambda request: fleet_pb2.ListTunnelsResponse(
        epoch="e", revision=1, full=True, tunnels=[fleet_pb2.TunnelEntry(agent_id="a-id")]
    )

    assert (await api_steps.list_instances_of_auth(state)).text == "1 auth and 1 proxy."
    assert (await api_steps.list_agents_of_auth(state)).text == "2 agents."
    assert (await api_steps.list_tunnels_of_proxies(state)).text == "1 tunnel on 1 proxy."


async def test_a_fleet_without_proxies(state: APIStepsState, auth: FakeAuth) -> None:
    """No agent is reachable."""
    auth.proxies = []

    finding = await api_steps.list_instances_of_auth(state)

    assert (finding.verdict, finding.text) == (
        StepVerdict.WARNING,
        "1 auth and 0 proxies. Without a proxy no agent is reachable.",
    )
    assert (await api_steps.list_tunnels_of_proxies(state)).verdict is StepVerdict.SKIPPED


async def test_a_stopped_proxy_is_named(state: APIStepsState, proxy: FakeProxy) -> None:
    """With its address, and its diag port in the next step."""
    await api_steps.list_instances_of_auth(state)
    proxy.stop()

    finding = await api_steps.list_tunnels_of_proxies(state)

    assert finding.verdict is StepVerdict.FAILED
    assert finding.text == f"proxy-1 ({proxy.address}): connection refused."
    finding = await api_steps.check_process_states(state)
    assert finding.verdict is StepVerdict.WARNING
    assert f"proxy-1 ({proxy.diag_address}): no process state" in finding.text
    assert finding.text.endswith("1 instance ready.")


async def test_a_degraded_process(state: APIStepsState, proxy: FakeProxy) -> None:
    """The code, and what it means."""
    proxy.readyz = 503
    await api_steps.list_instances_of_auth(state)

    finding = await api_steps.check_process_states(state)

    assert finding.text == f"proxy-1 ({proxy.diag_address}): /readyz responds with 503. 1 instance ready."
    assert "503 means degraded" in finding.remedy


def test_the_clock_of_one_instance(state: APIStepsState) -> None:
    """Its name; a small difference is none, a large one a failure."""
    assert api_steps.check_clocks(state).verdict is StepVerdict.SKIPPED
    for offset, verdict, text in (
        (3.0, StepVerdict.OK, "The clocks of 2 instances are within 5 s of the clock of this worker."),
        (-20.0, StepVerdict.WARNING, "The clock of proxy-1 is up to 20 s behind that of this worker."),
        (300.0, StepVerdict.FAILED, "The clock of proxy-1 is up to 5 min ahead of that of this worker."),
    ):
        state.clock_offsets = {"auth-1": 0.2, "proxy-1": offset}
        finding = api_steps.check_clocks(state)
        assert (finding.verdict, finding.text) == (verdict, text)
