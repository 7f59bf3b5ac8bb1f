"""Steps at an auth of a Teleport cluster whose resources and refusals a test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from fleet.clusters.connection_test import teleport_steps
from fleet.clusters.connection_test.api_steps import APIStepsState
from fleet.clusters.test_report import StepName, StepVerdict
from fleet.monitoring.sources.teleport.resources import KINDS
from fleet.protocol.networking.config import ORIGIN_LABEL
from fleet.transport.poll_connections import Connections
from fleet.wire import types_pb2
from tests.fakes.teleport_auth import FakeTeleportAuth, make_app, make_node

#: The steps of health have a test file of their own.
_STEPS = tuple(
    check for name, check in teleport_steps.CHECKS.items() if name not in {StepName.HEALTH, StepName.READYZ}
)


@pytest.fixture
def auth() -> Iterator[FakeTeleportAuth]:
    """An auth with two agents, an inventory, and one proxy."""
    auth = FakeTeleportAuth()
    auth.resources = {"node": [make_node("host-1")], "app_server": [make_app("host-2", "wiki")]}
    auth.inventory = {"host-1": "auth-id", "host-2": "auth-id"}
    auth.proxies = [types_pb2.ServerV2(metadata=types_pb2.Metadata(name="proxy-id"))]
    yield auth
    auth.stop()


@pytest.fixture
async def state(auth: FakeTeleportAuth) -> AsyncIterator[APIStepsState]:
    """The state of a test that has connected to the auth."""
    connections = Connections()
    yield APIStepsState(connections, [auth.address])
    await connections.close()


async def _run(state: APIStepsState) -> list[tuple[StepVerdict, str]]:
    findings = [await step(state) for step in _STEPS]  # type: ignore[misc]
    return [(finding.verdict, finding.text) for finding in findings]


async def test_a_role_with_all_verbs(state: APIStepsState) -> None:
    """Each step says what Refloat found; that the source was not tested with a real cluster, too."""
    (_, cluster), instances, agents, inventory, networking = await _run(state)
    assert cluster.startswith("Cluster example.com, Teleport 18.1.0. ")
    assert "not tested with a real cluster" in cluster
    assert instances == (StepVerdict.OK, "0 auths and 1 proxy.")
    assert agents == (StepVerdict.OK, "2 agents.")
    assert inventory == (StepVerdict.OK, "2 instances with 1 auth.")
    assert networking[0] is StepVerdict.OK
    assert networking[1].startswith("Revision revision-1. This test writes nothing")


async def test_each_missing_verb_hides_something_else(state: APIStepsState, auth: FakeTeleportAuth) -> None:
    """A warning names the verbs and what is not shown without them."""
    auth.refusals = {
        "app_server": grpc.StatusCode.PERMISSION_DENIED,
        "GetInstances": grpc.StatusCode.PERMISSION_DENIED,
        "GetClusterNetworkingConfig": grpc.StatusCode.PERMISSION_DENIED,
    }
    auth.error_code = grpc.StatusCode.PERMISSION_DENIED
    _, instances, agents, inventory, networking = await _run(state)
    assert {verdict for verdict, _ in (instances, agents, inventory, networking)} == {StepVerdict.WARNING}
    assert "list and read for auth_server and proxy" in instances[1]
    assert agents[1].startswith("1 agent. Refloat may not list the kinds app_server:")
    assert "list and read for instance" in inventory[1]
    assert "lacks the verb read for cluster_networking_config" in networking[1]


async def test_a_role_without_any_kind_fails(state: APIStepsState, auth: FakeTeleportAuth) -> None:
    auth.refusals = dict.fromkeys(KINDS, grpc.StatusCode.PERMISSION_DENIED)
    _, _, (verdict, text), *_ = await _run(state)
    assert verdict is StepVerdict.FAILED
    assert text.startswith("0 agents.")


async def test_a_role_whose_labels_match_nothing(state: APIStepsState, auth: FakeTeleportAuth) -> None:
    """The auth returns empty lists, without an error."""
    auth.resources = {}
    finding = await teleport_steps.check_agents(state)
    assert finding.verdict is StepVerdict.WARNING
    assert "labels" in finding.remedy


async def test_an_identity_of_another_cluster(state: APIStepsState, auth: FakeTeleportAuth) -> None:
    """The auth refuses everything: issue an identity."""
    auth.refusals = {"Ping": grpc.StatusCode.UNAUTHENTICATED}
    finding = await teleport_steps.check_identity(state)
    assert finding.verdict is StepVerdict.FAILED
    assert "tctl auth sign" in finding.remedy


async def test_a_disabled_inventory(state: APIStepsState, auth: FakeTeleportAuth) -> None:
    auth.inventory = {}
    finding = await teleport_steps.check_inventory(state)
    assert finding.verdict is StepVerdict.WARNING
    assert "TELEPORT_UNSTABLE_DISABLE_INSTANCE_HB" in finding.remedy


async def test_a_networking_config_that_only_the_config_file_changes(
    state: APIStepsState, auth: FakeTeleportAuth
) -> None:
    """The finding says so; a version without the API is a warning without a remedy."""
    auth.networking.metadata.labels[ORIGIN_LABEL] = "config-file"
    finding = await teleport_steps.check_networking_config(state)
    assert (finding.verdict, "managed by the config file" in finding.text) == (StepVerdict.OK, True)
    auth.refusals = {"GetClusterNetworkingConfig": grpc.StatusCode.UNIMPLEMENTED}
    finding = await teleport_steps.check_networking_config(state)
    assert (finding.verdict, finding.remedy) == (StepVerdict.WARNING, "")
    assert finding.text.startswith("This version of Teleport does not have a networking config")


async def test_a_sick_auth_fails_every_list(state: APIStepsState, auth: FakeTeleportAuth) -> None:
    auth.refusals = dict.fromkeys(
        (*KINDS, "GetInstances", "GetClusterNetworkingConfig"), grpc.StatusCode.UNAVAILABLE
    )
    auth.error_code = grpc.StatusCode.UNAVAILABLE
    _, *lists = await _run(state)
    assert {verdict for verdict, _ in lists} == {StepVerdict.FAILED}


async def test_without_an_auth_every_step_is_skipped(state: APIStepsState) -> None:
    state.auths = []
    assert {verdict for verdict, _ in await _run(state)} == {StepVerdict.SKIPPED}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            grpc.StatusCode.PERMISSION_DENIED,
            "2 agents. The role of Refloat's identity lacks the verb read for",
        ),
        (grpc.StatusCode.UNAVAILABLE, "did not open a watch: unavailable"),
    ],
)
async def test_an_auth_that_opens_no_watch(
    state: APIStepsState, auth: FakeTeleportAuth, code: grpc.StatusCode, text: str
) -> None:
    """The agents are shown all the same: by complete lists."""
    auth.refusals = {"WatchEvents": code}
    finding = await teleport_steps.check_agents(state)
    assert finding.verdict is StepVerdict.WARNING
    assert text in finding.text
