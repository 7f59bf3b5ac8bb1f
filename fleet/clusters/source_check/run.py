"""All rules of a source, in their order."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence

from fleet.clusters.source_check import declaration_rules
from fleet.clusters.source_check.findings import RuleFinding, SourceRule
from fleet.clusters.source_check.request_rules import find_request_problems
from fleet.monitoring.sources.source import SourcePolling
from fleet.source_plugins.declaration import ClusterSource
from fleet.source_plugins.registry import SourceLoadError, load_object
from fleet.transport.tls import TLSFiles

_NOT_LOADED = "The code of the source cannot be loaded."
_NO_FEED = "No request returned changes since a revision. Give the addresses of a cluster to check more."


async def check_source(
    source: ClusterSource,
    other_slugs: Collection[str],
    addresses: Sequence[str] = (),
    tls: TLSFiles | None = None,
) -> list[RuleFinding]:
    """Return the finding of each rule. `addresses`: auths of a cluster, from which the lists are read too."""
    findings = [
        _finding(SourceRule.SLUG, declaration_rules.find_slug_problems(source, other_slugs)),
        _finding(SourceRule.FORM, declaration_rules.find_form_field_problems(source)),
    ]
    problems: list[str] = []
    polling, checks = None, None
    try:
        polling = load_object(source.polling, SourcePolling)
    except SourceLoadError as error:
        problems.append(f"{source.polling}: {error}.")
    try:
        checks = load_object(source.connection_test, dict)
    except SourceLoadError as error:
        problems.append(f"{source.connection_test}: {error}.")
    findings.append(RuleFinding(SourceRule.CODE, tuple(problems)))
    findings.append(
        RuleFinding(SourceRule.CONNECTION_TEST, skip_reason=_NOT_LOADED)
        if checks is None
        else _finding(SourceRule.CONNECTION_TEST, declaration_rules.find_step_problems(source, checks))
    )
    findings += (
        [
            RuleFinding(rule, skip_reason=_NOT_LOADED)
            for rule in (
                SourceRule.CAPABILITIES,
                SourceRule.DEADLINES,
                SourceRule.ERRORS,
                SourceRule.REVISIONS,
            )
        ]
        if polling is None
        else await _check_polling(source, polling, addresses, tls)
    )
    order = list(SourceRule)
    return sorted(findings, key=lambda finding: order.index(finding.rule))


async def _check_polling(
    source: ClusterSource, polling: SourcePolling, addresses: Sequence[str], tls: TLSFiles | None
) -> list[RuleFinding]:
    # Requests to servers that misbehave make the libraries of clients complain, and nobody needs to read it.
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    request_problems = await find_request_problems(polling, addresses, tls)
    has_feed = request_problems.feed_count > 0
    return [
        _finding(SourceRule.CAPABILITIES, declaration_rules.find_capability_problems(source, polling)),
        _finding(SourceRule.DEADLINES, iter(request_problems.deadlines)),
        _finding(SourceRule.ERRORS, iter(request_problems.errors)),
        RuleFinding(SourceRule.REVISIONS, tuple(request_problems.revisions), "" if has_feed else _NO_FEED),
    ]


def _finding(rule: SourceRule, problems: Iterator[str]) -> RuleFinding:
    return RuleFinding(rule, tuple(problems))
