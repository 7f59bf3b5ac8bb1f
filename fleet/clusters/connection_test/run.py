"""The connection test: all steps in their order, each with a verdict."""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

import dns.asyncresolver

from fleet.clusters.connection_test import api_steps, server_steps
from fleet.clusters.connection_test.api_steps import StepCheck
from fleet.clusters.connection_test.findings import StepFinding
from fleet.clusters.test_report import ConnectionTestStep, StepName, StepVerdict
from fleet.source_plugins.registry import DEFAULT_SOURCE, load_object, require_source
from fleet.transport.poll_connections import Connections
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.clusters import AddressKind

logger = logging.getLogger(__name__)

_LONGEST_TEXT = 1000


async def run_connection_test(
    kind: AddressKind,
    entries: Sequence[str],
    tls: TLSFiles | None,
    source: str = DEFAULT_SOURCE,
    diag_addresses: Mapping[str, str] = MappingProxyType({}),
    *,
    resolver: dns.asyncresolver.Resolver | None = None,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[ConnectionTestStep]:
    """Yield every step of the source when it ends. `diag_addresses`: those that people entered, by instance.

    Raises SourceNotInstalledError, SourceLoadError.
    """
    cluster_source = require_source(source)
    checks: Mapping[StepName, StepCheck] = load_object(cluster_source.connection_test, dict)
    servers = server_steps.ServerStepsState(noun=cluster_source.form.address_noun)
    common_checks: Mapping[StepName, Callable[[], StepFinding | Awaitable[StepFinding]]] = {
        StepName.RESOLVE: lambda: server_steps.resolve_addresses(servers, kind, entries, resolver),
        StepName.CONNECT: lambda: server_steps.connect_to_servers(servers),
        StepName.TLS: lambda: server_steps.check_tls(servers, tls, clock()),
        StepName.IDENTITY: lambda: server_steps.check_identity(servers, tls),
    }
    names = list(cluster_source.test_steps)
    for name in names:
        if name in common_checks and name not in checks:
            yield await _run(name, common_checks[name])
    connections = Connections(tls)
    try:
        apis = api_steps.APIStepsState(
            connections, servers.addresses, tls, clock=clock, diag_addresses=diag_addresses
        )
        for name in names:
            if name in checks:
                yield await _run(name, functools.partial(checks[name], apis))
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
