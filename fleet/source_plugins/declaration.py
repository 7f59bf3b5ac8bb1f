"""Declaration of a source: what it can do, how the form of a cluster applies to it, and where its code is. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.clusters import COMMON_TLS_SOURCES, AddressKind, TLSSource
from fleet.vocabulary.connection_tests import StepName

#: Steps of a connection test that Refloat has for every source: addresses, TCP, TLS with gRPC, certificates with roles.
COMMON_STEPS = (StepName.RESOLVE, StepName.CONNECT, StepName.TLS, StepName.IDENTITY)


class AddressReach(Enum):
    """What Refloat reads from one entered address of a cluster."""

    #: The instances of the whole cluster: Refloat then reads from all of them.
    INSTANCES = "instances"
    #: The lists of the whole cluster, from the entered addresses only: one after the other until one responds.
    LISTS = "lists"
    #: What is at this address, and no other.
    ITSELF = "itself"


@dataclass(frozen=True, slots=True)
class SourceForm:
    """How the fields of a cluster apply to a source."""

    address_kinds: Sequence[AddressKind] = tuple(AddressKind)
    tls_sources: Sequence[TLSSource] = COMMON_TLS_SOURCES
    #: The clusters may have a name that is expected in certificates.
    has_server_name: bool = True
    #: Name that is expected in certificates without such a name; empty: that of the role of the instance.
    default_server_name: str = ""
    #: People enter the diag addresses of the instances, because the product does not list them.
    has_diag_addresses: bool = False
    #: What an address of a cluster is the address of, as a noun in texts.
    address_noun: str = "auth"
    #: Port of the examples, and of an address that is entered without one.
    default_port: int = 3025
    #: How many addresses people must enter follows from this.
    address_reach: AddressReach = AddressReach.INSTANCES


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """A product whose clusters Refloat monitors. An entry point of the group `refloat.sources` names it."""

    #: Value of `Cluster.source`: lowercase letters, digits and hyphens, at most 32 characters.
    slug: str
    #: Name of the product on pages.
    label: str
    #: What its clusters can have; one cluster may have less, by its version or the role of Refloat's identity.
    capabilities: frozenset[Capability]
    #: `module:object` of its `fleet.monitoring.sources.source.SourcePolling`.
    polling: str
    #: `module:object` of the checks of its steps by name: a dict of StepName to
    #: `fleet.clusters.connection_test.api_steps.StepCheck`.
    connection_test: str
    #: Steps of its connection test in their order, and the capabilities that each one tests.
    test_steps: Mapping[StepName, frozenset[Capability]]
    form: SourceForm = field(default_factory=SourceForm)
    #: What Refloat's support of the product was tested with, as a sentence; empty if with the product itself.
    tested_with: str = ""
    #: Why its clusters never have a capability: a sentence. Without one Refloat says that the product lacks an API.
    absence_reasons: Mapping[Capability, str] = field(default_factory=dict)
    #: Fields of the networking config that Refloat does not change in its clusters: names of
    #: `fleet.protocol.networking.config.NetworkingConfig`, each with the reason as a sentence.
    fixed_networking_fields: Mapping[str, str] = field(default_factory=dict)


def find_missing_reason(
    source: ClusterSource, findings: Mapping[Capability, str], capability: Capability
) -> str | None:
    """Return why a cluster does not have a capability, as a sentence; None if it has.

    `findings`: reasons that the newest round found at the cluster, such as a role that lacks a permission.
    """
    if capability in source.capabilities:
        return findings.get(capability)
    return source.absence_reasons.get(
        capability,
        f"{source.label} has no API for this: {capability.label[0].lower()}{capability.label[1:]}.",
    )


def list_missing(source: ClusterSource, findings: Mapping[Capability, str]) -> dict[Capability, str]:
    """Return the capabilities that a cluster does not have, each with the reason."""
    reasons = ((capability, find_missing_reason(source, findings, capability)) for capability in Capability)
    return {capability: reason for capability, reason in reasons if reason is not None}
