"""Steps with requests: each API that evidence or changes come from, and the clocks."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import aiohttp

from fleet.clusters.connection_test.findings import ServerProblem, StepFinding, count, skip_step, summarize
from fleet.clusters.connection_test.server_checks import find_connection_problem
from fleet.clusters.test_report import StepVerdict
from fleet.monitoring.pollers.shard_poll import query_source
from fleet.monitoring.sources import SourceError, map_source_errors
from fleet.monitoring.sources.health import HEALTH
from fleet.monitoring.sources.policies import POLICIES
from fleet.monitoring.sources.presence import AGENTS, INSTANCES, ListedInstance
from fleet.monitoring.sources.source import EvidenceSource, PollTarget, ResponseT
from fleet.monitoring.sources.tunnels import TUNNELS
from fleet.transport.admin import AdminError, NetworkingConfigClient, NotAllowedError, RejectedError
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSError, TLSFiles
from fleet.vocabulary.instances import InstanceKind, ServingStatus

#: Seconds for the requests of one step.
_TIMEOUT_SECONDS = 5.0
#: Proxies whose tunnels are requested, and instances whose process state is.
_MOST_PROXIES = 5
_MOST_DIAG_PORTS = 10
#: Seconds between clocks that are no problem, and that make instances appear expired.
_CLOCK_WARNING_SECONDS = 5.0
_CLOCK_FAILURE_SECONDS = 60.0
_NO_AUTH = "No auth to ask: an earlier step failed."
_ROLE_REMEDY = "Issue a certificate with the role console for Refloat, and set it here."


@dataclass(slots=True)
class APIStepsState:
    """What the steps have found so far."""

    connections: Connections
    #: Auths that passed the steps before, host:port; after the health check the healthy ones come first.
    auths: Sequence[str]
    tls: TLSFiles | None = None
    instances: Sequence[ListedInstance] = ()
    #: Seconds by which the clock of each instance is ahead of this machine's, by name.
    clock_offsets: dict[str, float] = field(default_factory=dict)
    clock: Callable[[], float] = time.time
    #: Diag addresses that people entered, by name or id of the instance.
    diag_addresses: Mapping[str, str] = field(default_factory=dict)


#: Check of a step: it reads and updates what the steps have found so far.
StepCheck: TypeAlias = Callable[[APIStepsState], StepFinding | Awaitable[StepFinding]]


async def check_health_of_auths(state: APIStepsState) -> StepFinding:
    """Ask each auth for its health."""
    if not state.auths:
        return skip_step(_NO_AUTH)
    responses = await _query_all(state, state.auths, HEALTH)
    problems: list[tuple[str, ServerProblem | None]] = []
    for address, response in zip(state.auths, responses, strict=True):
        if isinstance(response, SourceError):
            problem = _describe_error(response, "health")
        elif response.serving_status is ServingStatus.SERVING:
            problem = None
        elif response.serving_status is ServingStatus.NOT_SERVING:
            problem = ServerProblem(
                "it reports that it is not serving",
                "Read the log of this auth: its backend may be down. Refloat reads from the other auths.",
                StepVerdict.WARNING,
            )
        else:
            problem = ServerProblem(
                "it has no gRPC health service",
                "Check that the address is that of an auth.",
                StepVerdict.WARNING,
            )
        problems.append((address, problem))
    responsive_auths = [address for address, problem in problems if not _has_failed(problem)]
    serving = {address for address, problem in problems if problem is None}
    state.auths = sorted(responsive_auths, key=lambda address: address not in serving)
    return summarize(problems, f"{count(len(serving), 'auth')} serving." if serving else "")


async def list_instances_of_auth(state: APIStepsState) -> StepFinding:
    """Read the list of auths and proxies."""
    response = await _query_first_auth(state, INSTANCES)
    if response is None:
        return skip_step(_NO_AUTH)
    if isinstance(response, SourceError):
        if _is_unimplemented(response):
            address, state.auths = state.auths[0], []
            return StepFinding(
                StepVerdict.FAILED,
                f"{address} does not list auths and proxies (PresenceService): it is not an auth.",
                "Enter the address of an auth. A proxy and a gateway have other ports and APIs.",
            )
        return _finding_of(response, state, "the list of auths and proxies")
    state.instances = response
    kinds = [instance.kind for instance in response]
    text = (
        f"{count(kinds.count(InstanceKind.AUTH), 'auth')} and "
        f"{count(kinds.count(InstanceKind.PROXY), 'proxy', 'proxies')}."
    )
    if InstanceKind.PROXY not in kinds:
        return StepFinding(
            StepVerdict.WARNING,
            f"{text} Without a proxy no agent is reachable.",
            "Start a proxy. If proxies run, check in their logs that they reach an auth.",
        )
    return StepFinding(StepVerdict.OK, text)


async def list_agents_of_auth(state: APIStepsState) -> StepFinding:
    """Read the list of agents."""
    response = await _query_first_auth(state, AGENTS)
    if response is None:
        return skip_step(_NO_AUTH)
    if isinstance(response, SourceError):
        return _finding_of(response, state, "the list of agents")
    agent_count = sum(entry is not None for entry in response.agents.values())
    if response.complete:
        return StepFinding(StepVerdict.OK, f"{count(agent_count, 'agent')}.")
    return StepFinding(
        StepVerdict.WARNING,
        f"At least {count(agent_count, 'agent')}: the list did not end within {_TIMEOUT_SECONDS:g} s.",
        "Rounds read the list in parts. If it stays slow, check the load of the auth and the network between it and "
        "the workers.",
    )


async def list_tunnels_of_proxies(state: APIStepsState) -> StepFinding:
    """Read the tunnels of some proxies."""
    proxies = [
        instance
        for instance in state.instances
        if instance.kind is InstanceKind.PROXY and instance.resource.address
    ][:_MOST_PROXIES]
    if not proxies:
        return skip_step("The auth lists no proxy with an address." if state.auths else _NO_AUTH)
    addresses = [proxy.resource.address for proxy in proxies]
    responses = await _query_all(state, addresses, TUNNELS, InstanceKind.PROXY)
    problems: list[tuple[str, ServerProblem | None]] = []
    tunnel_count = 0
    for proxy, response in zip(proxies, responses, strict=True):
        problem = None
        if isinstance(response, SourceError):
            address = proxy.resource.address
            if not response.has_response:
                # gRPC only says that it failed to connect.
                problem = await find_connection_problem(address, state.tls, "proxy", state.clock())
            problem = problem or _describe_error(response, "tunnels")
        else:
            tunnel_count += sum(entry is not None for entry in response.agents.values())
        problems.append((f"{proxy.resource.name} ({proxy.resource.address})", problem))
    working_count = sum(problem is None for _, problem in problems)
    return summarize(
        problems,
        f"{count(tunnel_count, 'tunnel')} on {count(working_count, 'proxy', 'proxies')}."
        if working_count
        else "",
    )


async def check_process_states(state: APIStepsState) -> StepFinding:
    """Request /readyz of some instances, and note their clocks."""
    instances = [instance for instance in state.instances if instance.resource.diag_address]
    if not instances:
        text = "No instance lists a diag port, so there is no process state to read."
        return skip_step(text if state.auths else _NO_AUTH)
    instances = instances[:_MOST_DIAG_PORTS]
    problems = await asyncio.gather(*(_check_readyz(state, instance) for instance in instances))
    working_count = sum(problem is None for problem in problems)
    names = [f"{instance.resource.name} ({instance.resource.diag_address})" for instance in instances]
    return summarize(
        list(zip(names, problems, strict=True)),
        f"{count(working_count, 'instance')} ready." if working_count else "",
    )


async def read_networking_config(state: APIStepsState) -> StepFinding:
    """Ask the best auth for the config that changes start from."""
    if not state.auths:
        return skip_step(_NO_AUTH)
    address = state.auths[0]
    try:
        channel = state.connections.channel(address, InstanceKind.AUTH)
        stored_config = await NetworkingConfigClient(channel, within=_TIMEOUT_SECONDS).get()
    except NotAllowedError as error:
        return StepFinding(StepVerdict.FAILED, f"{address} does not allow it: {error}.", _ROLE_REMEDY)
    except RejectedError:
        return StepFinding(
            StepVerdict.WARNING,
            f"{address} has no networking config (ClusterConfigService).",
            "Refloat shows the fleet without it, but cannot change it.",
        )
    except (AdminError, TLSError) as error:
        return StepFinding(
            StepVerdict.FAILED,
            f"{address} did not return the networking config: {_one_line(str(error))}.",
            "Read the log of this auth: its backend may be down.",
        )
    revision = stored_config.resource.revision
    return StepFinding(StepVerdict.OK, f"Read from {address}{f', revision {revision}' if revision else ''}.")


async def read_policies_of_auth(state: APIStepsState) -> StepFinding:
    """Read the policies of an auth."""
    response = await _query_first_auth(state, POLICIES)
    if response is None:
        return skip_step(_NO_AUTH)
    if isinstance(response, SourceError):
        if _is_unimplemented(response):
            return StepFinding(
                StepVerdict.WARNING,
                f"{state.auths[0]} does not report its policies (NodePolicies).",
                "Teleport's auths do not have this API: Refloat shows the fleet, but not their policies.",
            )
        return _finding_of(response, state, "the policies")
    return StepFinding(
        StepVerdict.OK, f"{count(len(response.policies), 'policy', 'policies')} read from {state.auths[0]}."
    )


def check_clocks(state: APIStepsState) -> StepFinding:
    """Compare the clocks of the instances with this machine's."""
    if not state.clock_offsets:
        return skip_step("No instance has reported its time." if state.auths else _NO_AUTH)
    offsets = list(state.clock_offsets.values())
    worst = max(offsets, key=abs)
    if abs(worst) < _CLOCK_WARNING_SECONDS:
        return StepFinding(
            StepVerdict.OK,
            f"{_count_clocks(offsets)} within {_CLOCK_WARNING_SECONDS:g} s of the clock of this worker.",
        )
    names = [name for name, offset in state.clock_offsets.items() if abs(offset) >= _CLOCK_WARNING_SECONDS]
    is_ours = len(names) == len(offsets) > 1 and max(offsets) - min(offsets) < _CLOCK_WARNING_SECONDS
    direction = "ahead of" if worst > 0 else "behind"
    verdict = StepVerdict.FAILED if abs(worst) >= _CLOCK_FAILURE_SECONDS else StepVerdict.WARNING
    if is_ours:
        worker_direction = "behind" if worst > 0 else "ahead of"
        return StepFinding(
            verdict,
            f"The clock of this worker is {_format_seconds(abs(worst))} {worker_direction} those of all "
            f"{len(offsets)} instances.",
            "Synchronize the clock of the machine where workers run (NTP): instances appear expired, or never expire.",
        )
    return StepFinding(
        verdict,
        f"The clock of {', '.join(names[:3])} is up to {_format_seconds(abs(worst))} {direction} that of this worker.",
        "Synchronize the clocks of these machines and of the workers (NTP): with different clocks instances appear "
        "expired, or never expire.",
    )


async def _query(
    state: APIStepsState,
    address: str,
    source: EvidenceSource[ResponseT],
    kind: InstanceKind = InstanceKind.AUTH,
) -> ResponseT | SourceError:
    ends_at = time.monotonic() + _TIMEOUT_SECONDS
    return await query_source(
        state.connections,
        PollTarget(None, kind, address),
        source,
        lambda: ends_at - time.monotonic(),
        state.clock,
    )


async def _query_all(
    state: APIStepsState,
    addresses: Sequence[str],
    source: EvidenceSource[ResponseT],
    kind: InstanceKind = InstanceKind.AUTH,
) -> list[ResponseT | SourceError]:
    async def query(address: str) -> ResponseT | SourceError:
        return await _query(state, address, source, kind)

    return await asyncio.gather(*map(query, addresses))


async def _query_first_auth(
    state: APIStepsState, source: EvidenceSource[ResponseT]
) -> ResponseT | SourceError | None:
    """Return the response of the best auth; None without an auth."""
    if not state.auths:
        return None
    response: ResponseT | SourceError = await _query(state, state.auths[0], source)
    return response


async def _check_readyz(state: APIStepsState, instance: ListedInstance) -> ServerProblem | None:
    """Request /readyz with the server's time, which rounds do not need."""
    url = f"http://{instance.resource.diag_address}/readyz"
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS)
    started_at = state.clock()
    try:
        with map_source_errors():
            async with state.connections.session.get(url, timeout=timeout, allow_redirects=False) as response:
                code, date = response.status, response.headers.get("Date", "")
    except SourceError as error:
        return ServerProblem(
            f"no process state: {_one_line(str(error))}",
            "Allow the workers to reach the diag ports. Without them Refloat judges instances by gRPC alone.",
            StepVerdict.WARNING,
        )
    middle = (started_at + state.clock()) / 2
    if (server_time := _parse_date(date)) is not None:
        # The header has whole seconds: on average half a second has passed since.
        state.clock_offsets[instance.resource.name] = server_time + 0.5 - middle
    if code == 200:
        return None
    return ServerProblem(
        f"/readyz responds with {code}",
        "Read the logs of these instances: 503 means degraded, 400 recovering or starting.",
        StepVerdict.WARNING,
    )


def _parse_date(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp() if text else None
    except ValueError:
        return None


def _describe_error(error: SourceError, api: str) -> ServerProblem:
    text = _one_line(str(error))
    if text.startswith(("permission denied", "unauthenticated")):
        return ServerProblem(f"it does not allow Refloat to read its {api}: {text}", _ROLE_REMEDY)
    if not error.has_response:
        return ServerProblem(
            text,
            "Check that it runs and that the workers reach this address: instances announce it themselves "
            "(--advertise). With TLS, check its certificate and that it is from the same CA.",
        )
    if _is_unimplemented(error):
        return ServerProblem(
            f"it has no API for its {api}", "Check that the address is that of an instance with this role."
        )
    return ServerProblem(text, "Read the log of this instance.")


def _finding_of(error: SourceError, state: APIStepsState, api: str) -> StepFinding:
    """Return the finding of a request to the best auth that failed."""
    address, text = state.auths[0], _one_line(str(error))
    if text.startswith(("permission denied", "unauthenticated")):
        return StepFinding(
            StepVerdict.FAILED, f"{address} does not allow Refloat to read {api}: {text}.", _ROLE_REMEDY
        )
    if _is_unimplemented(error):
        return StepFinding(
            StepVerdict.FAILED,
            f"{address} does not have {api}.",
            "Check that the address is that of an auth, and its version.",
        )
    if not error.has_response:
        return StepFinding(
            StepVerdict.FAILED,
            f"{address} did not return {api}: {text}.",
            "Check the load of this auth and its backend.",
        )
    return StepFinding(
        StepVerdict.FAILED, f"{address} did not return {api}: {text}.", "Read the log of this auth."
    )


def _is_unimplemented(error: SourceError) -> bool:
    return error.has_response and str(error).startswith("unimplemented")


def _has_failed(problem: ServerProblem | None) -> bool:
    return problem is not None and problem.verdict is StepVerdict.FAILED


def _count_clocks(offsets: Sequence[Any]) -> str:
    return (
        "The clock of 1 instance is" if len(offsets) == 1 else f"The clocks of {len(offsets)} instances are"
    )


def _format_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _one_line(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= 200 else f"{line[:199]}…"
