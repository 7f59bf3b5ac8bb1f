"""Rules that the declaration of a source and its code show without a request."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from fleet.clusters.address_entries import is_server_name
from fleet.monitoring.sources.source import SourcePolling
from fleet.protocol.networking.config import FIELDS
from fleet.source_plugins.declaration import COMMON_STEPS, ClusterSource
from fleet.source_plugins.registry import is_slug
from fleet.vocabulary.capabilities import EVIDENCE_CAPABILITIES, Capability
from fleet.vocabulary.clusters import AddressKind, TLSSource
from fleet.vocabulary.connection_tests import StepName

_NETWORKING_FIELD_NAMES = frozenset(field.name for field in FIELDS)


def find_slug_problems(source: ClusterSource, other_slugs: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with the slug and the label."""
    if not is_slug(source.slug):
        yield f"{source.slug!r:.50} is not a slug: use lowercase letters, digits and hyphens."
    if source.slug in other_slugs:
        yield f"Another source has the slug {source.slug}."
    if not source.label.strip() or not source.label.isprintable():
        yield "The source has no printable label."


def find_capability_problems(source: ClusterSource, polling: SourcePolling) -> Iterator[str]:
    """Yield capabilities that are declared or delivered, but not both, and sources of evidence with one name."""
    declared_evidence = source.capabilities & EVIDENCE_CAPABILITIES
    for capability in Capability:
        if capability in declared_evidence - polling.capabilities:
            yield f"{capability} is declared, but no evidence source delivers it."
        if capability in polling.capabilities - declared_evidence:
            yield f"{capability} is delivered by an evidence source, but not declared."
        if capability in source.absence_reasons and capability in source.capabilities:
            yield f"{capability} is declared, but has a reason for its absence."
    for name in source.fixed_networking_fields.keys() - _NETWORKING_FIELD_NAMES:
        yield f"{name!s:.50} is not a field of the networking config."
    for sources in (polling.instance_sources, polling.list_sources):
        names = [evidence_source.name for evidence_source in sources]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield f"Two evidence sources have the name {name}."


def find_form_field_problems(source: ClusterSource) -> Iterator[str]:
    """Yield what is wrong with the fields of a cluster's form."""
    form = source.form
    kinds, tls_sources = set(form.address_kinds), set(form.tls_sources)
    if not kinds or not kinds <= set(AddressKind):
        yield "The form has no kind of address, or one that Refloat does not have."
        return
    if not tls_sources or not tls_sources <= set(TLSSource):
        yield "The form has no source of TLS files, or one that Refloat does not have."
        return
    if form.default_server_name and not form.has_server_name:
        yield "The form has no server name, but a default of it."
    if form.default_server_name and not is_server_name(form.default_server_name):
        yield f"The default server name {form.default_server_name!r:.50} is not a host name."


def find_step_problems(source: ClusterSource, checks: Mapping[StepName, object]) -> Iterator[str]:
    """Yield capabilities without a step, and steps without a check."""
    steps = source.test_steps
    unknown_names = [name for name in (*steps, *checks) if name not in set(StepName)]
    for name in unknown_names:
        yield f"{name!s:.50} is not a step of connection tests."
    tested = frozenset[Capability]().union(*steps.values())
    for capability in Capability:
        if capability in source.capabilities - tested:
            yield f"No step tests {capability}."
        if capability in tested - source.capabilities:
            yield f"A step tests {capability}, which the source does not declare."
    for name in StepName:
        if name in steps and name not in checks and name not in COMMON_STEPS:
            yield f"The step {name} has no check."
        if name in checks and name not in steps:
            yield f"The check of {name} belongs to no step."
        if name in checks and not callable(checks[name]):
            yield f"The check of {name} cannot be called."
