"""Steps of the connection test of a cluster of NATS hubs. The addresses are those of monitoring ports."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from fleet.clusters.connection_test.api_steps import APIStepsState, StepCheck, check_clocks
from fleet.clusters.connection_test.findings import ServerProblem, StepFinding, count, skip_step, summarize
from fleet.clusters.test_report import StepName, StepVerdict
from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.nats.documents import (
    HubDocument,
    LeafList,
    NATSDocumentError,
    OldVersionError,
    find_health_problem,
    parse_hub,
    parse_leaves,
)
from fleet.monitoring.sources.nats.leaf_port import check_leaf_ports, find_leaf_address
from fleet.monitoring.sources.nats.monitoring_port import (
    LARGEST_DOCUMENT,
    LARGEST_LEAF_LIST,
    AuthenticationError,
    MonitoringResponse,
    get_document,
)
from fleet.monitoring.sources.nats.polling import list_instances_of
from fleet.protocol.text_limits import cut
from fleet.vocabulary.error_texts import summarize_error

_TIMEOUT_SECONDS = 5.0
_MOST_NAMES = 3
_LONGEST_NAME = 60
_NO_HUB = "No hub to ask: an earlier step failed."
_NOT_NATS = (
    "Enter the address of the monitoring port of nats-server (http: 8222 in its configuration), not its port for "
    "clients or leaf nodes. Monitoring with TLS (https) is not supported."
)
_READ_LOG = "Read the log of this nats-server."
ParsedT = TypeVar("ParsedT")


async def check_product(state: APIStepsState) -> StepFinding:
    """Read /varz of each address: whether it is a NATS server with leaf nodes, its version, and its clock."""
    if not state.auths:
        return skip_step("No address that accepts connections.")
    problems: list[tuple[str, ServerProblem | None]] = []
    hubs: dict[str, HubDocument] = {}
    for address, hub in (await _read_all(state, state.auths, "/varz", _parse_varz)).items():
        problem = hub if isinstance(hub, ServerProblem) else None
        if isinstance(hub, HubDocument):
            hubs[address] = hub
            if not hub.leaf_port and not hub.leaf_count:
                problem = ServerProblem(
                    "this nats-server does not accept leaf nodes",
                    'Enter the addresses of hubs, or add leafnodes { listen: "0.0.0.0:7422" } to the configuration.',
                    StepVerdict.WARNING,
                )
        problems.append((address, problem))
    state.auths = list(hubs)
    versions = ", ".join(sorted({hub.version for hub in hubs.values()})[:_MOST_NAMES])
    return summarize(
        problems, f"{count(len(hubs), 'nats-server')}, version {cut(versions, 100)}." if hubs else ""
    )


async def check_health(state: APIStepsState) -> StepFinding:
    """Read /healthz of each hub."""
    if not state.auths:
        return skip_step(_NO_HUB)
    responses = await _read_all(state, state.auths, "/healthz", _parse_health)
    problems: list[tuple[str, ServerProblem | None]] = []
    for address, response in responses.items():
        if isinstance(response, ServerProblem):
            problems.append((address, response))
        elif response:
            problems.append((address, ServerProblem(response, _READ_LOG, StepVerdict.WARNING)))
        else:
            problems.append((address, None))
    healthy_count = sum(problem is None for _, problem in problems)
    return summarize(problems, f"{count(healthy_count, 'hub')} healthy." if healthy_count else "")


async def list_hubs(state: APIStepsState) -> StepFinding:
    """Say which hubs there are, and whether their names are usable."""
    hubs = await _read_hubs(state)
    if not hubs:
        return skip_step(_NO_HUB)
    instances = list_instances_of(hubs)
    state.instances = instances
    text = f"{count(len(instances), 'hub')}: {_list_names(instance.resource.name for instance in instances)}."
    shared_names = _find_repeated({hub.server_id: hub.name for hub in hubs.values()}.values())
    if shared_names:
        return StepFinding(
            StepVerdict.WARNING,
            f"{text} Several hubs have the same server_name: {_list_names(shared_names)}.",
            "Set another server_name in the configuration of each hub.",
        )
    unnamed = [address for address, hub in hubs.items() if not hub.has_name]
    if unnamed:
        return StepFinding(
            StepVerdict.WARNING,
            f"{text} {_list_names(unnamed)} {'has' if len(unnamed) == 1 else 'have'} no server_name: Refloat shows "
            "the address instead.",
            "Set server_name in the configuration of each hub.",
        )
    return StepFinding(StepVerdict.OK, text)


async def list_leaves(state: APIStepsState) -> StepFinding:
    """Read /leafz of each hub: the number of leaf nodes, and whether their names are usable."""
    if not state.auths:
        return skip_step(_NO_HUB)
    problems: list[tuple[str, ServerProblem | None]] = []
    agent_ids: list[str] = []
    unstable_names: list[str] = []
    unnamed_count = 0
    responses = await _read_all(state, state.auths, "/leafz", _parse_leafz, LARGEST_LEAF_LIST)
    for address, leaf_list in responses.items():
        problems.append((address, leaf_list if isinstance(leaf_list, ServerProblem) else None))
        if isinstance(leaf_list, LeafList):
            agent_ids += [connection.agent_id for connection in leaf_list.connections]
            unstable_names += [
                connection.name for connection in leaf_list.connections if connection.is_named_by_id
            ]
            unnamed_count += leaf_list.unnamed_count
            repeated_ids = _find_repeated(connection.agent_id for connection in leaf_list.connections)
            if repeated_ids:
                problems[-1] = (
                    address,
                    ServerProblem(
                        f"several leaf nodes have the same server_name and account: {_list_names(repeated_ids)}",
                        "Give each leaf node a server_name of its own: Refloat shows these as one agent.",
                        StepVerdict.WARNING,
                    ),
                )
    if unstable_names or unnamed_count:
        example = f", for example {_list_names(unstable_names[:1])}" if unstable_names else ""
        problems.append(
            (
                "Leaf nodes",
                ServerProblem(
                    f"{count(len(unstable_names) + unnamed_count, 'leaf node')} without server_name{example}",
                    "Set server_name in the configuration of each leaf node: without it each restart appears as "
                    "another agent.",
                    StepVerdict.WARNING,
                ),
            )
        )
    has_response = any(isinstance(leaf_list, LeafList) for leaf_list in responses.values())
    return summarize(problems, f"{count(len(set(agent_ids)), 'leaf node')}." if has_response else "")


async def check_agent_ports(state: APIStepsState) -> StepFinding:
    """Connect to the port of each hub to which leaf nodes connect, and to the address that it advertises."""
    hubs = await _read_hubs(state)
    listeners = {address: find_leaf_address(address, hub) for address, hub in hubs.items()}
    reachable = {address: listener for address, listener in listeners.items() if listener is not None}
    if not reachable:
        return skip_step("No hub has a port for leaf nodes that Refloat can reach." if hubs else _NO_HUB)
    ends_at = time.monotonic() + _TIMEOUT_SECONDS
    clauses = await asyncio.gather(
        *(
            check_leaf_ports(listener, lambda: ends_at - time.monotonic(), has_tls=hubs[address].has_leaf_tls)
            for address, listener in reachable.items()
        )
    )
    remedy = (
        "Allow the workers to reach this port, and the address in advertise: Refloat connects to it as leaf nodes "
        "do, and reports a hub whose port does not respond as unhealthy."
    )
    problems = [
        (address, ServerProblem(clause, remedy) if clause else None)
        for address, clause in zip(reachable, clauses, strict=True)
    ]
    working_ports = [str(reachable[address]) for address, problem in problems if problem is None]
    return summarize(
        problems, f"Leaf nodes can connect to {_list_names(working_ports)}." if working_ports else ""
    )


async def _read_hubs(state: APIStepsState) -> dict[str, HubDocument]:
    responses = await _read_all(state, state.auths, "/varz", _parse_varz)
    return {address: hub for address, hub in responses.items() if isinstance(hub, HubDocument)}


async def _read_all(
    state: APIStepsState,
    addresses: Sequence[str],
    path: str,
    parse: Callable[[MonitoringResponse], ParsedT],
    max_bytes: int = LARGEST_DOCUMENT,
) -> dict[str, ParsedT | ServerProblem]:
    """Return the parsed response of each address, or its problem; note the clocks in /varz."""

    async def read(address: str) -> ParsedT | ServerProblem:
        session, started_at = state.connections.session, state.clock()
        try:
            parsed_response = parse(
                await get_document(session, address, path, timeout=_TIMEOUT_SECONDS, max_bytes=max_bytes)
            )
        except SourceError as error:
            return _describe_error(error)
        except OldVersionError as error:
            return ServerProblem(
                str(error), "Update nats-server: until then Refloat shows its hubs without agents."
            )
        except NATSDocumentError as error:
            return ServerProblem(f"{path}: {error}", _NOT_NATS)
        if isinstance(parsed_response, HubDocument) and parsed_response.now is not None:
            middle = (started_at + state.clock()) / 2
            state.clock_offsets[cut(parsed_response.name, _LONGEST_NAME)] = parsed_response.now - middle
        return parsed_response

    return dict(zip(addresses, await asyncio.gather(*map(read, addresses)), strict=True))


def _parse_varz(response: MonitoringResponse) -> HubDocument:
    return parse_hub(response.document)


def _parse_leafz(response: MonitoringResponse) -> LeafList:
    return parse_leaves(response.document)


def _parse_health(response: MonitoringResponse) -> str:
    return find_health_problem(response.status, response.document)


def _describe_error(error: SourceError) -> ServerProblem:
    text = summarize_error(" ".join(str(error).split())).rstrip(".")
    if isinstance(error, AuthenticationError):
        return ServerProblem(
            text,
            "nats-server has no passwords for its monitoring port: a reverse proxy asks for it. Enter the address "
            "of the port itself, and let a firewall allow only the workers.",
        )
    if error.has_response:
        return ServerProblem(text, _NOT_NATS)
    return ServerProblem(
        text,
        "Check that nats-server runs with monitoring (http: 8222) on an address that the workers reach, not on "
        "loopback of another machine, and that no firewall blocks the port.",
    )


def _find_repeated(names: Iterable[str]) -> list[str]:
    return [name for name, number in Counter(names).items() if number > 1]


def _list_names(names: Iterable[str]) -> str:
    texts = [cut(name, _LONGEST_NAME) for name in names]
    rest_count = len(texts) - _MOST_NAMES
    return ", ".join(texts[:_MOST_NAMES]) + (f" and {rest_count} more" if rest_count > 0 else "")


CHECKS: dict[StepName, StepCheck] = {
    StepName.PRODUCT: check_product,
    StepName.HEALTH: check_health,
    StepName.INSTANCES: list_hubs,
    StepName.AGENTS: list_leaves,
    StepName.AGENT_PORT: check_agent_ports,
    StepName.CLOCK: check_clocks,
}
