"""Steps of the connection test of a Teleport cluster: who it is, and what the role of Refloat's identity allows."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fleet.clusters.connection_test.api_steps import APIStepsState, StepCheck
from fleet.clusters.connection_test.findings import StepFinding, count, skip_step
from fleet.clusters.connection_test.teleport_health_steps import check_diag_ports, check_health
from fleet.clusters.test_report import StepVerdict
from fleet.monitoring.pollers.shard_poll import query_source
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.source import EvidenceSource, PollTarget, SourceContext
from fleet.monitoring.sources.teleport.instances import list_instances
from fleet.monitoring.sources.teleport.inventory import read_auth_by_host, read_cluster
from fleet.monitoring.sources.teleport.leaf_clusters import LEAF_CLUSTER_KIND, TUNNEL_KIND
from fleet.monitoring.sources.teleport.networking import read_networking_config
from fleet.monitoring.sources.teleport.refusals import is_denied
from fleet.monitoring.sources.teleport.resources import KINDS, AgentLists, read_agent_lists
from fleet.monitoring.sources.teleport.watch import open_watch
from fleet.protocol.networking.config import Origin
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.connection_tests import StepName
from fleet.vocabulary.instances import InstanceKind

#: Seconds for the requests of one step.
_TIMEOUT_SECONDS = 10.0
_NO_AUTH = "No auth to ask: an earlier step failed."
_ROLE_REMEDY = "Give the role of Refloat's identity these verbs, and issue the identity again."
_IDENTITY_REMEDY = (
    "Issue an identity for Refloat with tctl auth sign --format=tls, and set its files for this cluster."
)
ResponseT = TypeVar("ResponseT")


async def check_identity(state: APIStepsState) -> StepFinding:
    """Ask for the name and the version of the cluster, which every identity of the cluster may know."""
    response = await _query(state, read_cluster)
    if response is None:
        return skip_step(_NO_AUTH)
    if isinstance(response, SourceError):
        remedy = _IDENTITY_REMEDY if response.has_response else "Read the log of this auth."
        return StepFinding(StepVerdict.FAILED, f"{state.auths[0]}: {_one_line(response)}.", remedy)
    return StepFinding(
        StepVerdict.OK,
        f"Cluster {response.name}, Teleport {response.version or 'of unknown version'}. "
        "This source was built against Teleport's published API, and not tested with a real cluster.",
    )


async def check_instances(state: APIStepsState) -> StepFinding:
    """Read the list of auths and proxies."""
    missing_reasons: dict[Capability, str] = {}
    response = await _query(state, list_instances, missing_reasons)
    if response is None:
        return skip_step(_NO_AUTH)
    if isinstance(response, SourceError):
        return _fail(state, response, "list its auths and proxies")
    if reason := missing_reasons.get(Capability.INSTANCES):
        return StepFinding(
            StepVerdict.WARNING,
            f"{reason} Refloat shows the agents, but no auths and proxies, and names no causes.",
            _ROLE_REMEDY if reason.startswith("The role") else "",
        )
    state.instances = response
    kinds = [instance.kind for instance in response]
    return StepFinding(
        StepVerdict.OK,
        f"{count(kinds.count(InstanceKind.AUTH), 'auth')} and "
        f"{count(kinds.count(InstanceKind.PROXY), 'proxy', 'proxies')}.",
    )


async def check_agents(state: APIStepsState) -> StepFinding:
    """Read the resources of every kind, whose hosts are the agents, and open a watch of them."""
    response = await _query(state, read_agent_lists)
    if response is None:
        return skip_step(_NO_AUTH)
    if isinstance(response, SourceError):
        return _fail(state, response, "list its agents")
    agents, refused_kinds = response.changes.agents, response.refused_kinds
    text = _describe_agents(response)
    if not refused_kinds and not agents:
        # Labels that do not match hide resources without an error.
        return StepFinding(
            StepVerdict.WARNING,
            f"{text} The cluster has no agents with tunnels, or the labels of the role match none.",
            "Check the role of Refloat's identity: it needs the labels '*': '*' for each kind of resource.",
        )
    if not refused_kinds:
        if reason := await _find_watch_problem(state):
            return StepFinding(
                StepVerdict.WARNING,
                f"{text} {reason} Each round reads the complete lists.",
                _ROLE_REMEDY if reason.startswith("The role") else "",
            )
        return StepFinding(StepVerdict.OK, text)
    verdict = StepVerdict.FAILED if len(refused_kinds) == len(KINDS) else StepVerdict.WARNING
    return StepFinding(
        verdict,
        f"{text} Refloat may not list the kinds {', '.join(refused_kinds)}: agents that serve only these are not "
        "shown.",
        "Give the role of Refloat's identity the verbs list and read for these kinds, and labels '*': '*'.",
    )


async def _find_watch_problem(state: APIStepsState) -> str:
    """Return why an auth opens no watch, as a sentence; empty if it opens one."""

    async def open_and_close(context: SourceContext) -> None:
        watch = await open_watch(context)
        if watch is not None:
            watch.close()

    missing_reasons: dict[Capability, str] = {}
    response = await _query(state, open_and_close, missing_reasons)
    if isinstance(response, SourceError):
        return f"{state.auths[0]} did not open a watch: {_one_line(response)}."
    return missing_reasons.get(Capability.WATCH, "")


def _describe_agents(lists: AgentLists) -> str:
    leaf_clusters = lists.leaf_clusters
    agent_count = len(lists.changes.agents) - len(leaf_clusters.agents)
    if reason := leaf_clusters.refused_kinds.get(LEAF_CLUSTER_KIND):
        return f"{count(agent_count, 'agent')}. Leaf clusters are not listed: {reason[0].lower()}{reason[1:]}"
    if not leaf_clusters.agents:
        return f"{count(agent_count, 'agent')}."
    text = f"{count(agent_count, 'agent')} and {count(len(leaf_clusters.agents), 'leaf cluster')}."
    if reason := leaf_clusters.refused_kinds.get(TUNNEL_KIND):
        return f"{text} The proxies of leaf clusters are not known: {reason[0].lower()}{reason[1:]}"
    return text


async def check_inventory(state: APIStepsState) -> StepFinding:
    """Read which auth each agent is connected to."""
    missing_reasons: dict[Capability, str] = {}
    response = await _query(state, read_auth_by_host, missing_reasons)
    if response is None:
        return skip_step(_NO_AUTH)
    if isinstance(response, SourceError):
        return _fail(state, response, "return its inventory")
    if reason := missing_reasons.get(Capability.AGENT_TO_AUTH):
        return StepFinding(
            StepVerdict.WARNING,
            f"{reason} Refloat does not know which agents depend on an auth.",
            _ROLE_REMEDY if reason.startswith("The role") else "",
        )
    if not response:
        return StepFinding(
            StepVerdict.WARNING,
            "The inventory is empty: Refloat does not know which agents depend on an auth.",
            "Check that the auths run without TELEPORT_UNSTABLE_DISABLE_INSTANCE_HB.",
        )
    return StepFinding(StepVerdict.OK, f"{count(len(response), 'instance')} with {_count_auths(response)}.")


async def check_networking_config(state: APIStepsState) -> StepFinding:
    """Read the networking config. Whether the role may change it shows only in a change."""
    missing_reasons: dict[Capability, str] = {}
    response = await _query(state, read_networking_config, missing_reasons)
    if isinstance(response, SourceError):
        return _fail(state, response, "return its networking config")
    if reason := missing_reasons.get(Capability.NETWORKING_READ):
        return StepFinding(
            StepVerdict.WARNING,
            f"{reason} Refloat neither shows nor changes the networking config.",
            "Give the role of Refloat's identity the verbs read and update for cluster_networking_config, and issue "
            "the identity again."
            if reason.startswith("The role")
            else "",
        )
    if response is None:
        return skip_step(_NO_AUTH)
    if response.origin == Origin.CONFIG_FILE:
        permission = (
            "It is managed by the config file of the auths, so Refloat shows it, and does not change it."
        )
    else:
        permission = "This test writes nothing, so it does not check the verb update."
    return StepFinding(StepVerdict.OK, f"Revision {response.revision}. {permission}")


def _count_auths(auth_by_host: dict[str, str]) -> str:
    return count(len(set(auth_by_host.values())), "auth")


async def _query(
    state: APIStepsState,
    request: Callable[[SourceContext], Awaitable[ResponseT]],
    missing_capabilities: dict[Capability, str] | None = None,
) -> ResponseT | SourceError | None:
    """Return the response of the first auth; None without an auth."""
    if not state.auths:
        return None
    ends_at = time.monotonic() + _TIMEOUT_SECONDS
    response: ResponseT | SourceError = await query_source(
        state.connections,
        PollTarget(None, InstanceKind.AUTH, state.auths[0]),
        EvidenceSource("connection test", request),
        lambda: ends_at - time.monotonic(),
        state.clock,
        state.auths,
        missing_capabilities,
    )
    return response


def _fail(state: APIStepsState, error: SourceError, action: str) -> StepFinding:
    remedy = _ROLE_REMEDY if is_denied(error) else "Read the log of this auth: its backend may be down."
    return StepFinding(StepVerdict.FAILED, f"{state.auths[0]} did not {action}: {_one_line(error)}.", remedy)


def _one_line(error: SourceError) -> str:
    return " ".join(str(error).split()).rstrip(".")


CHECKS: dict[StepName, StepCheck] = {
    StepName.IDENTITY: check_identity,
    StepName.HEALTH: check_health,
    StepName.INSTANCES: check_instances,
    StepName.AGENTS: check_agents,
    StepName.INVENTORY: check_inventory,
    StepName.NETWORKING: check_networking_config,
    StepName.READYZ: check_diag_ports,
}
