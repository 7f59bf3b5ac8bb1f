"""`refloat source`: list the installed sources, and check a source by the rules for plug-ins. No console."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from fleet.cli.output import Failure, print_json
from fleet.clusters.source_check.findings import RuleFinding, pack_findings
from fleet.clusters.source_check.run import check_source
from fleet.clusters.test_report import StepVerdict
from fleet.nodes.shared.flags import cluster_tls_options
from fleet.source_plugins.registry import InstalledSources, installed_sources
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.capabilities import Capability

_COLORS = {StepVerdict.OK: "green", StepVerdict.FAILED: "red", StepVerdict.SKIPPED: "bright_black"}


@click.group()
def source() -> None:
    """List and check sources: the products that Refloat monitors."""


@source.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print the sources as JSON.")
def list_sources(as_json: bool) -> None:
    """List the installed sources with their capabilities, and plug-ins that cannot be used.

    Exit code 1: a plug-in cannot be used.
    """
    installed = installed_sources()
    if as_json:
        print_json(_pack_sources(installed))
    else:
        for slug, cluster_source in installed.by_slug.items():
            absent = [
                capability.value for capability in Capability if capability not in cluster_source.capabilities
            ]
            click.echo(
                f"{slug}  {cluster_source.label}  "
                + (f"without {', '.join(absent)}" if absent else "all capabilities")
            )
        for problem in installed.problems:
            click.secho(problem, fg="red")
    if installed.problems:
        raise click.exceptions.Exit(1)


@source.command()
@click.argument("name")
@click.option(
    "--auths",
    default="",
    help="Addresses of auths (host:port), separated by commas: their lists are read too.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@cluster_tls_options
def check(name: str, auths: str, as_json: bool, tls: TLSFiles) -> None:
    """Check a source by the rules for plug-ins: its declaration, and its requests to servers that misbehave.

    The servers run in this process, on loopback. Exit code 0: the source keeps all rules; 1: it breaks a rule.
    """
    installed = installed_sources()
    checked_source = installed.by_slug.get(name)
    if checked_source is None:
        problems = "".join(f" {problem}" for problem in installed.problems)
        raise Failure(
            f"the source {name} is not installed. Installed: {', '.join(installed.by_slug)}.{problems}"
        )
    addresses = [address.strip() for address in auths.split(",") if address.strip()]
    other_slugs = installed.by_slug.keys() - {name}
    findings = asyncio.run(check_source(checked_source, other_slugs, addresses, tls if tls.enabled else None))
    if as_json:
        print_json(pack_findings(name, findings))
    else:
        for finding in findings:
            click.echo(format_finding(finding))
    if any(finding.problems for finding in findings):
        raise click.exceptions.Exit(1)


def format_finding(finding: RuleFinding) -> str:
    """Return the verdict and the rule; below it each problem."""
    verdict = click.style(f"{finding.verdict.label:<8}", fg=_COLORS[finding.verdict])
    note = f" ({finding.skip_reason})" if finding.verdict is StepVerdict.SKIPPED else ""
    problems = "".join(f"\n{'':9}{problem}" for problem in finding.problems)
    return f"{verdict} {finding.rule}: {finding.rule.label}{note}{problems}"


def _pack_sources(installed: InstalledSources) -> dict[str, Any]:
    return {
        "sources": [
            {
                "slug": slug,
                "label": cluster_source.label,
                "capabilities": [
                    capability.value for capability in Capability if capability in cluster_source.capabilities
                ],
            }
            for slug, cluster_source in installed.by_slug.items()
        ],
        "problems": list(installed.problems),
    }
