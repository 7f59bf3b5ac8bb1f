"""Steps of the connection test of a Teleport cluster: gRPC health of its auths, and diag ports of its instances."""

from __future__ import annotations

import asyncio
import time

from fleet.clusters.connection_test.api_steps import APIStepsState
from fleet.clusters.connection_test.findings import ServerProblem, StepFinding, count, skip_step, summarize
from fleet.clusters.test_report import StepVerdict
from fleet.monitoring.pollers.shard_poll import query_source
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.diag_addresses import KnownInstance, find_diag_address, find_unknown_names
from fleet.monitoring.sources.health import HEALTH, HealthResponse
from fleet.monitoring.sources.presence import ListedInstance
from fleet.monitoring.sources.source import EvidenceSource, PollTarget
from fleet.monitoring.sources.teleport.diag_port import CONNECTION_COUNTS, get_process_state
from fleet.vocabulary.instances import READYZ_DEGRADED, InstanceKind, ServingStatus

#: Seconds for the requests of the step, and instances that it asks.
_TIMEOUT_SECONDS = 10.0
_MOST_INSTANCES = 20
_NO_AUTH = "No auth to ask: an earlier step failed."
_PROCESS_STATE = EvidenceSource("process state", get_process_state)


async def check_health(state: APIStepsState) -> StepFinding:
    """Ask each auth for its gRPC health, which is its process state; later steps ask those that are ready first."""
    if not state.auths:
        return skip_step(_NO_AUTH)
    responses = await asyncio.gather(*(_get_health(state, address) for address in state.auths))
    problems = [
        (address, _health_problem_of(response))
        for address, response in zip(state.auths, responses, strict=True)
    ]
    ready_auths = [address for address, problem in problems if problem is None]
    state.auths = sorted(state.auths, key=lambda address: address not in ready_auths)
    return summarize(problems, f"{count(len(ready_auths), 'auth')} ready." if ready_auths else "")


async def _get_health(state: APIStepsState, address: str) -> HealthResponse | SourceError:
    ends_at = time.monotonic() + _TIMEOUT_SECONDS
    target = PollTarget(None, InstanceKind.AUTH, address)
    query = query_source(state.connections, target, HEALTH, lambda: ends_at - time.monotonic(), state.clock)
    return await query


def _health_problem_of(response: HealthResponse | SourceError) -> ServerProblem | None:
    """Return the problem of an auth; none for a version without gRPC health, which reports nothing."""
    if isinstance(response, SourceError):
        return ServerProblem(f"no health: {_one_line(response)}", "Read the log of this auth.")
    if response.serving_status is not ServingStatus.NOT_SERVING:
        return None
    return ServerProblem(
        "it reports that it is not ready, so its lists may be old",
        "Read the log of this auth: its backend may be down. Enter the address of another auth too.",
        StepVerdict.WARNING,
    )


async def check_diag_ports(state: APIStepsState) -> StepFinding:
    """Request /readyz and /metrics of the instances that have a diag address."""
    if not state.auths:
        return skip_step(_NO_AUTH)
    if not state.diag_addresses:
        return skip_step(
            "Refloat has no diag addresses of this cluster: it judges instances by their heartbeats alone, and shows "
            "no numbers of tunnels. Enter the addresses in the form of the cluster."
        )
    known_instances = [
        KnownInstance(instance.id, instance.resource.name, instance.kind) for instance in state.instances
    ]
    problems: list[tuple[str, ServerProblem | None]] = [
        (
            name,
            ServerProblem(
                "no listed instance has this name or UUID",
                "Correct the names in the diag addresses of the cluster.",
                StepVerdict.WARNING,
            ),
        )
        for name in find_unknown_names(state.diag_addresses, known_instances)
    ]
    targets = [
        (instance, address)
        for instance in state.instances
        if (address := find_diag_address(state.diag_addresses, instance.id, instance.resource.name))
    ][:_MOST_INSTANCES]
    responses = await asyncio.gather(
        *(_find_problem(state, instance, address) for instance, address in targets)
    )
    problems += [
        (f"{instance.resource.name} ({address})", problem)
        for (instance, address), problem in zip(targets, responses, strict=True)
    ]
    ready_count = sum(problem is None for problem in responses)
    return summarize(problems, f"{count(ready_count, 'instance')} ready." if ready_count else "")


async def _find_problem(state: APIStepsState, instance: ListedInstance, address: str) -> ServerProblem | None:
    ends_at = time.monotonic() + _TIMEOUT_SECONDS
    target = PollTarget(None, instance.kind, address, address)

    def remaining_seconds() -> float:
        return ends_at - time.monotonic()

    state_query = query_source(state.connections, target, _PROCESS_STATE, remaining_seconds, state.clock)
    counts_query = query_source(state.connections, target, CONNECTION_COUNTS, remaining_seconds, state.clock)
    process_state, counts = await asyncio.gather(state_query, counts_query)
    if isinstance(process_state, SourceError):
        return ServerProblem(
            f"no process state: {_one_line(process_state)}",
            "Check --diag-addr of this instance, and allow the workers to reach it. Until then Refloat shows the "
            "instance as not responding.",
        )
    if process_state.code == READYZ_DEGRADED and instance.kind is InstanceKind.AUTH:
        return ServerProblem(
            "/readyz responds with 503: it cannot write to its backend",
            "Read the log of this auth, and check its backend.",
            StepVerdict.WARNING,
        )
    if process_state.code != 200:
        return ServerProblem(
            f"/readyz responds with {process_state.code}",
            "Read the logs of these instances: 503 means degraded, 400 recovering or starting.",
            StepVerdict.WARNING,
        )
    if isinstance(counts, SourceError):
        return ServerProblem(
            f"no metrics: {_one_line(counts)}",
            "Check that this is the --diag-addr of the instance. Refloat shows no numbers of its connections.",
            StepVerdict.WARNING,
        )
    return None


def _one_line(error: SourceError) -> str:
    return " ".join(str(error).split()).rstrip(".")
