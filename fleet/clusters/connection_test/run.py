"""The connection test: all steps in their order, each with a verdict."""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import dns.asyncresolver

from fleet.clusters.connection_test import api_steps, server_steps
from fleet.clusters.connection_test.findings import StepFinding
from fleet.clusters.test_report import ConnectionTestStep, StepName, StepVerdict
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.clusters import AddressKind

logger = logging.getLogger(__name__)

_LONGEST_TEXT = 1000


async def run_connection_test(
    kind: AddressKind,
    entries: Sequence[str],
    tls: TLSFiles | None,
    *,
    resolver: dns.asyncresolver.Resolver | None = None,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[ConnectionTestStep]:
    """Yield every step when it ends."""
    servers = server_steps.ServerStepsState()
    yield await _run(
        StepName.RESOLVE, lambda: server_steps.resolve_addresses(servers, kind, entries, resolver)
    )
    yield await _run(StepName.CONNECT, lambda: server_steps.connect_to_servers(servers))
    yield await _run(StepName.TLS, lambda: server_steps.check_tls(servers, tls, clock()))
    yield await _run(StepName.IDENTITY, lambda: server_steps.check_identity(servers, tls))
    connections = Connections(tls)
    try:
        apis = api_steps.APIStepsState(connections, servers.addresses, tls, clock=clock)
        for name, check in (
            (StepName.HEALTH, api_steps.check_health_of_auths),
            (StepName.INSTANCES, api_steps.list_instances_of_auth),
            (StepName.AGENTS, api_steps.list_agents_of_auth),
            (StepName.TUNNELS, api_steps.list_tunnels_of_proxies),
            (StepName.READYZ, api_steps.check_process_states),
            (StepName.NETWORKING, api_steps.read_networking_config),
            (StepName.POLICIES, api_steps.read_policies_of_auth),
            (StepName.CLOCK, api_steps.check_clocks),
        ):
            yield await _run(name, functools.partial(check, apis))
    finally:
        await connections.close()


async def _run(
    name: StepName, check: Callable[[], StepFinding | Awaitable[StepFinding]]
) -> ConnectionTestStep:
    start = time.monotonic()
    try:
        finding = check()
        finding = await finding if inspect.isawaitable(finding) else finding
    except Exception:
        # One step must not end the test: the others still tell what works.
        logger.exception("the step %s of a connection test failed", name)
        finding = StepFinding(
            StepVerdict.FAILED,
            "This step ended with an error in Refloat.",
            "Read the log of the worker, and report it.",
        )
    text = finding.text if len(finding.text) <= _LONGEST_TEXT else f"{finding.text[: _LONGEST_TEXT - 1]}…"
    return ConnectionTestStep(name, finding.verdict, text, finding.remedy, time.monotonic() - start)
