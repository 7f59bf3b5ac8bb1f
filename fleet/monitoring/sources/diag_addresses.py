"""Diag addresses that people entered for the instances of a cluster: docs/reference/clusters.md. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceKind

_REMEDY = "enter them in the form of the cluster"


class KnownInstance(NamedTuple):
    """What an entry may name, and the kind."""

    id: str
    name: str
    kind: InstanceKind


def find_diag_address(addresses: Mapping[str, str], instance_id: str, name: str) -> str:
    """Return the diag address of an instance, host:port; empty without one. Its id counts before its name."""
    return addresses.get(instance_id) or addresses.get(name, "")


def find_unknown_names(addresses: Mapping[str, str], instances: Iterable[KnownInstance]) -> list[str]:
    """Return the entries that are neither the name nor the id of an instance."""
    known_names = {text for instance in instances for text in (instance.id, instance.name)}
    return [name for name in addresses if name not in known_names]


def find_missing_by_diag_addresses(
    addresses: Mapping[str, str],
    instances: Collection[KnownInstance],
    capabilities: Collection[Capability],
) -> dict[Capability, str]:
    """Return which capabilities a cluster lacks without diag addresses, with the reason as a sentence.

    `capabilities`: those that the diag ports of the source give a cluster.
    """
    kinds = {
        instance.kind for instance in instances if find_diag_address(addresses, instance.id, instance.name)
    }
    reasons: dict[Capability, str] = {}
    for capability in capabilities:
        if capability is Capability.TUNNEL_COUNTS and InstanceKind.PROXY not in kinds:
            reasons[capability] = _describe_absence("proxies", addresses, kinds)
        elif not kinds:
            reasons[capability] = _describe_absence("auths and proxies", addresses, kinds)
    return reasons


def _describe_absence(noun: str, addresses: Mapping[str, str], kinds: Collection[InstanceKind]) -> str:
    if addresses and not kinds:
        return (
            "The diag addresses of this cluster name no instance that it lists: enter the names or UUIDs of its "
            f"{noun} in the form of the cluster."
        )
    return f"Refloat has no diag addresses of its {noun}: {_REMEDY}."
