"""Capabilities that a cluster does not have, by the declaration of its source and by what rounds found."""

from __future__ import annotations

from dashboards.shared import record_reader
from fleet.changes import CapabilityMissingError
from fleet.models.clusters import Cluster
from fleet.monitoring.state import StateUnavailableError
from fleet.source_plugins.declaration import list_missing
from fleet.source_plugins.registry import DEFAULT_SOURCE, find_source
from fleet.vocabulary.capabilities import Capability


def missing_capabilities_of(cluster: str, slug: str = "") -> dict[Capability, str]:
    """Return the capabilities that a cluster does not have, each with the reason as a sentence.

    `slug`: its source, if the caller has read it. Nothing is known of a source that is not installed. While Redis is
    unavailable, what rounds found is left out.
    """
    slug = (
        slug or Cluster.objects.filter(pk=cluster).values_list("source", flat=True).first() or DEFAULT_SOURCE
    )
    source = find_source(slug)
    if source is None:
        return {}
    try:
        findings = record_reader.reader().missing_capabilities(cluster)
    except StateUnavailableError:
        findings = {}
    return list_missing(source, findings)


def require_capability(cluster: str, capability: Capability) -> None:
    """Raise CapabilityMissingError with the reason if a cluster does not have a capability."""
    reason = missing_capabilities_of(cluster).get(capability)
    if reason is not None:
        raise CapabilityMissingError(capability, reason)
