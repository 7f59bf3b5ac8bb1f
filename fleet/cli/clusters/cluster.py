"""`refloat cluster`: manage the clusters of this installation; test a connection, without a console."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace

import click

from fleet.cli.output import Failure, print_json
from fleet.cli.program.server import create_command
from fleet.clusters.address_entries import add_default_port, check_entries
from fleet.clusters.connection_test.run import run_connection_test
from fleet.clusters.diag_addresses import DiagAddressError, find_diag_address_problems, parse_lines
from fleet.clusters.test_report import (
    ConnectionTestReport,
    ConnectionTestStep,
    StepVerdict,
    pack_report,
)
from fleet.nodes.shared.flags import cluster_tls_options
from fleet.source_plugins.registry import (
    DEFAULT_SOURCE,
    SourceLoadError,
    SourceNotInstalledError,
    require_source,
)
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.clusters import AddressKind

_VERDICT_COLORS = {
    StepVerdict.OK: "green",
    StepVerdict.WARNING: "yellow",
    StepVerdict.FAILED: "red",
    StepVerdict.SKIPPED: "bright_black",
}


class _ConnectionTestFailed(click.exceptions.Exit):
    """A step failed; the output says which. Exit code 1."""

    def __init__(self) -> None:
        super().__init__(1)


@click.group()
def cluster() -> None:
    """Manage clusters, and test the connection to a cluster."""


for _name, _summary in (
    ("list", "List clusters with their settings."),
    ("show", "Show a cluster, without its uploaded TLS files."),
    ("add", "Add a cluster; Refloat polls it from its next round on."),
    ("edit", "Change values of a cluster; others stay."),
    ("pause", "Poll nothing of a cluster, and open no incidents."),
    ("resume", "Poll a paused cluster again."),
    ("remove", "Remove a cluster with its history and settings."),
    ("set", "Change what changes of a cluster require."),
):
    cluster.add_command(create_command(_name, _summary, group=("cluster",)))


@cluster.command()
@click.option(
    "--auths",
    required=True,
    help="Addresses of some auths (host:port), separated by commas; or the entries of another --kind.",
)
@click.option(
    "--kind",
    type=click.Choice([kind.value for kind in AddressKind]),
    default=AddressKind.STATIC.value,
    show_default=True,
    help="static: host:port; dns: host:port with all addresses of the host; srv: names of SRV records; file_sd: "
    "paths of Prometheus file_sd files.",
)
@click.option(
    "--source", default=DEFAULT_SOURCE, show_default=True, help="What its auths, proxies and agents run."
)
@click.option(
    "--diag-addresses",
    default="",
    help="Of a Teleport cluster: instances with the host:port of their --diag-addr, separated by commas, such as "
    "'auth-1 10.0.0.1:3000, proxy-1 10.0.0.2:3000'.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@cluster_tls_options
def test(auths: str, kind: str, source: str, diag_addresses: str, as_json: bool, tls: TLSFiles) -> None:
    """Test the connection to a cluster from this machine, and say what to do about each failure.

    The test changes nothing. Exit code 0: no step failed; 1: a step failed.
    """
    entries = [entry.strip() for entry in auths.split(",") if entry.strip()]
    address_kind = AddressKind(kind)
    addresses = _parse_diag_addresses(diag_addresses)
    try:
        form = require_source(source).form
        entries = [add_default_port(address_kind, entry, form.default_port) for entry in entries]
        tls = replace(tls, server_name=tls.server_name or form.default_server_name)
        if problems := check_entries(address_kind, entries):
            raise Failure(f"--auths: {problems[0]}")
        report = asyncio.run(
            _run(address_kind, entries, tls if tls.enabled else None, source, addresses, is_shown=not as_json)
        )
    except (SourceNotInstalledError, SourceLoadError) as error:
        raise Failure(f"--source: {error}") from error
    if as_json:
        print_json(pack_report(report))
    if report.verdict is StepVerdict.FAILED:
        raise _ConnectionTestFailed


def _parse_diag_addresses(text: str) -> dict[str, str]:
    try:
        addresses = parse_lines(text.split(","))
    except DiagAddressError as error:
        raise Failure(f"--diag-addresses: {error}") from error
    if problems := find_diag_address_problems(addresses):
        raise Failure(f"--diag-addresses: {problems[0]}")
    return addresses


async def _run(
    kind: AddressKind,
    entries: list[str],
    tls: TLSFiles | None,
    source: str,
    diag_addresses: Mapping[str, str],
    *,
    is_shown: bool,
) -> ConnectionTestReport:
    now = time.time()
    report = ConnectionTestReport(
        "", "", now, started_at=now, step_names=tuple(require_source(source).test_steps)
    )
    async for step in run_connection_test(kind, entries, tls, source, diag_addresses):
        report = replace(report, steps=(*report.steps, step))
        if is_shown:
            click.echo(format_step(step))
    return replace(report, ended_at=time.time())


def format_step(step: ConnectionTestStep) -> str:
    """Return the verdict and the text of a step; below it what to do."""
    verdict = click.style(f"{step.verdict.label:<8}", fg=_VERDICT_COLORS[step.verdict])
    line = f"{verdict} {step.label}: {step.text}"
    return f"{line}\n{'':9}What to do: {step.remedy}" if step.remedy else line
