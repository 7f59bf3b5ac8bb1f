"""Steps with requests, against NATS hubs whose responses a test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fleet.clusters.connection_test import nats_steps
from fleet.clusters.connection_test.api_steps import APIStepsState, check_clocks
from fleet.clusters.connection_test.run import run_connection_test
from fleet.clusters.test_report import ConnectionTestStep, StepName, StepVerdict
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.clusters import AddressKind
from tests.fakes.nats import FakeHub, as_response, leafz, run_hub, varz

_SERVER_ID = "NDD5NQE2WAMPEA7N5V56BA7LNHOCWXHXB2IVMRNXONGDKFILRFJPLSMI"


@pytest.fixture
async def hub() -> AsyncIterator[FakeHub]:
    """A healthy hub without leaf nodes."""
    async with run_hub() as fake_hub:
        yield fake_hub


@pytest.fixture
def state(connections: Connections, hub: FakeHub) -> APIStepsState:
    """The state of a test that has connected to the monitoring port of the hub, at second 100."""
    return APIStepsState(connections, [hub.address], clock=lambda: 100.0)


async def _run(*entries: str) -> dict[StepName, ConnectionTestStep]:
    return {step.name: step async for step in run_connection_test(AddressKind.STATIC, entries, None, "nats")}


async def test_a_hub_passes_every_step(hub: FakeHub) -> None:
    """But the clock: this hub lives in 1970."""
    hub.set_documents(leafz=leafz("leaf-1", "leaf-2"))
    steps = await _run(hub.address)
    assert {name: step.text for name, step in steps.items()} | {StepName.CLOCK: ""} == {
        StepName.RESOLVE: f"1 address: {hub.address}.",
        StepName.CONNECT: f"{hub.address} accepts connections.",
        StepName.PRODUCT: "1 nats-server, version 2.15.2.",
        StepName.HEALTH: "1 hub healthy.",
        StepName.INSTANCES: "1 hub: hub-1.",
        StepName.AGENTS: "2 leaf nodes.",
        StepName.AGENT_PORT: f"Leaf nodes can connect to 127.0.0.1:{hub.leaf_port}.",
        StepName.CLOCK: "",
    }
    assert steps[StepName.CLOCK].verdict is StepVerdict.FAILED
    other_verdicts = {step.verdict for name, step in steps.items() if name is not StepName.CLOCK}
    assert other_verdicts == {StepVerdict.OK}


async def test_no_server_responds() -> None:
    """The first step that fails says what to do, in words of this product; the other_verdicts are skipped."""
    steps = await _run("127.0.0.1:1")
    assert steps[StepName.CONNECT].verdict is StepVerdict.FAILED
    assert "Check that the hub runs" in steps[StepName.CONNECT].remedy
    later_steps = list(steps.values())[2:]
    assert {step.verdict for step in later_steps} == {StepVerdict.SKIPPED}
    steps = await _run()
    assert "at least one hub" in steps[StepName.RESOLVE].remedy


@pytest.mark.parametrize(
    ("response", "text", "remedy"),
    [
        (as_response(b"<html>"), "/varz is not JSON", "monitoring port"),
        (as_response({"app": 1}), "not from nats-server", "monitoring port"),
        (as_response(b"", 401), "requires authentication", "reverse proxy"),
        (b"", "no response in time", "http: 8222"),
    ],
)
async def test_an_address_of_another_server(
    state: APIStepsState,
    hub: FakeHub,
    response: bytes,
    text: str,
    remedy: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each failure has what to do, and no hub is left for the next steps."""
    monkeypatch.setattr(nats_steps, "_TIMEOUT_SECONDS", 0.5 if not response else 20.0)
    hub.responses["/varz"] = response
    finding = await nats_steps.check_product(state)
    assert finding.verdict is StepVerdict.FAILED
    assert text in finding.text
    assert remedy in finding.remedy
    assert (await nats_steps.list_hubs(state)).verdict is StepVerdict.SKIPPED
    assert (await nats_steps.check_agent_ports(state)).verdict is StepVerdict.SKIPPED


async def test_a_server_without_leaf_nodes(state: APIStepsState, hub: FakeHub) -> None:
    """A server of a NATS cluster need not be a hub."""
    hub.set_documents(varz=varz(leaf={}))
    finding = await nats_steps.check_product(state)
    assert finding.verdict is StepVerdict.WARNING
    assert "does not accept leaf nodes" in finding.text
    assert "leafnodes {" in finding.remedy
    assert (await nats_steps.check_agent_ports(state)).verdict is StepVerdict.SKIPPED


async def test_an_unhealthy_hub(state: APIStepsState, hub: FakeHub) -> None:
    hub.responses["/healthz"] = as_response({"status": "unavailable", "error": "no leader"}, 503)
    finding = await nats_steps.check_health(state)
    assert (finding.verdict, finding.text) == (
        StepVerdict.WARNING,
        f"{hub.address}: its /healthz returns 503: no leader.",
    )


async def test_hubs_without_names_of_their_own(state: APIStepsState, hub: FakeHub) -> None:
    """No name, or the same as another hub."""
    hub.set_documents(varz=varz(server_name="HUB"))
    finding = await nats_steps.list_hubs(state)
    assert finding.verdict is StepVerdict.WARNING
    assert f"{hub.address} has no server_name" in finding.text
    async with run_hub() as other_hub:
        hub.set_documents(varz=varz(server_name="nats"))
        other_hub.set_documents(varz=varz(server_id="B", server_name="nats"))
        state.auths = [hub.address, other_hub.address]
        finding = await nats_steps.list_hubs(state)
    assert "same server_name: nats" in finding.text


async def test_leaf_nodes_without_names_of_their_own(state: APIStepsState, hub: FakeHub) -> None:
    """An id as the name, no name, or the same name and account twice."""
    hub.set_documents(leafz=leafz("leaf-1", _SERVER_ID, ""))
    finding = await nats_steps.list_leaves(state)
    assert finding.verdict is StepVerdict.WARNING
    assert (
        finding.text
        == f"Leaf nodes: 2 leaf nodes without server_name, for example {_SERVER_ID}. 2 leaf nodes."
    )
    assert "each restart appears as another agent" in finding.remedy
    hub.set_documents(leafz=leafz("leaf-1", "leaf-1"))
    finding = await nats_steps.list_leaves(state)
    assert "the same server_name and account: leaf-1" in finding.text


async def test_a_hub_that_is_too_old(state: APIStepsState, hub: FakeHub) -> None:
    hub.set_documents(leafz=leafz(leafs=[{"account": "$G"}]))
    finding = await nats_steps.list_leaves(state)
    assert finding.verdict is StepVerdict.FAILED
    assert "update it to 2.9.15" in finding.text
    assert "Update nats-server" in finding.remedy


async def test_a_port_for_leaf_nodes_that_is_held(
    state: APIStepsState, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_steps, "_TIMEOUT_SECONDS", 1.0)
    hub.first_bytes = None
    finding = await nats_steps.check_agent_ports(state)
    assert finding.verdict is StepVerdict.FAILED
    assert finding.text == f"{hub.address}: its leaf node port 127.0.0.1:{hub.leaf_port} does not respond."
    assert "advertise" in finding.remedy


async def test_the_clock_of_a_hub(state: APIStepsState, hub: FakeHub) -> None:
    """By the time in /varz."""
    await nats_steps.check_product(state)
    assert check_clocks(state).verdict is StepVerdict.OK
    hub.set_documents(varz=varz(now="1970-01-01T00:10:00Z"))
    await nats_steps.check_product(state)
    finding = check_clocks(state)
    assert finding.verdict is StepVerdict.FAILED
    assert "The clock of hub-1 is up to 8 min ahead of" in finding.text
