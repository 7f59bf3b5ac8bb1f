"""What the source of a cluster can tell Refloat, in sentences for the page of the cluster. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fleet.source_plugins.declaration import ClusterSource
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.name_lists import join_names
from fleet.vocabulary.natural_order import version_sort_key

_MAX_NAMED_VERSIONS = 3


@dataclass(frozen=True, slots=True)
class SourceWords:
    """Product, what Refloat may read of it, and what that was tested with."""

    #: `Teleport 18.1.4`, `Teleport 18.1.4 and 18.2.0`; without a known version only the product.
    product: str
    #: Of the identity of Refloat; empty if its certificate names none.
    roles: tuple[str, ...]
    #: `list of agents, list of instances and health of instances`; empty if there is nothing.
    allowed_text: str
    #: Labels of capabilities that the cluster does not have; the page has the reason of each.
    missing_text: str
    #: A sentence; empty if Refloat was tested with the product itself.
    tested_with: str


def describe_source(
    source: ClusterSource,
    versions: Iterable[str],
    roles: tuple[str, ...],
    missing_capabilities: Collection[Capability],
) -> SourceWords:
    """Return what a cluster tells Refloat. `versions`: of its instances, with empty ones where they tell none."""
    known_versions = sorted({version for version in versions if version}, key=version_sort_key)
    named_versions = known_versions[:_MAX_NAMED_VERSIONS]
    if rest_count := len(known_versions) - len(named_versions):
        named_versions.append(f"{rest_count} more versions")
    present_labels = [
        _lower(capability.label) for capability in Capability if capability not in missing_capabilities
    ]
    missing_labels = [
        _lower(capability.label) for capability in Capability if capability in missing_capabilities
    ]
    return SourceWords(
        product=" ".join(filter(None, (source.label, join_names(named_versions)))),
        roles=roles,
        allowed_text=join_names(present_labels),
        missing_text=join_names(missing_labels),
        tested_with=source.tested_with,
    )


def _lower(label: str) -> str:
    return label[0].lower() + label[1:]
