"""What the source of a cluster means for changes of its networking config. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.protocol.networking.config import (
    FIELDS,
    OWN_FIELD_NAMES,
    FieldProblem,
    NetworkingConfig,
    differences,
)
from fleet.source_plugins.declaration import ClusterSource, find_missing_reason
from fleet.source_plugins.registry import DEFAULT_SOURCE
from fleet.vocabulary.capabilities import Capability


@dataclass(frozen=True, slots=True)
class SourceRules:
    """The rules of a source; by default those of Refloat's own auths, proxies and agents."""

    #: Name of the product on pages.
    label: str = "Refloat"
    #: The programs of the cluster are Refloat's: they use only some of the fields.
    is_own: bool = True
    #: Fields that Refloat does not change, by name, each with the reason as a sentence.
    fixed_fields: Mapping[str, str] = field(default_factory=dict)
    #: Why Refloat cannot forecast the effect on tunnels, as sentences; empty if it can.
    no_forecast_reason: str = ""

    @property
    def omitted_keys(self) -> frozenset[str]:
        """Keys of fields that the product does not have: its documents leave them out."""
        return frozenset(self.fixed_fields.keys() & OWN_FIELD_NAMES)

    @property
    def no_closing_reason(self) -> str:
        """Why the product has no GracefulTunnelClosing, as a sentence; empty if it has."""
        return self.fixed_fields.get("graceful_tunnel_closing", "")

    def find_fixed_problems(
        self, before: NetworkingConfig, desired_config: NetworkingConfig
    ) -> tuple[FieldProblem, ...]:
        """Return a problem for each field that a change may not set, without the full stop."""
        return tuple(
            FieldProblem(config_field.key, _to_clause(self.fixed_fields[config_field.name]))
            for config_field, _, _ in differences(before, desired_config)
            if config_field.name in self.fixed_fields
        )


def rules_of_source(source: ClusterSource | None) -> SourceRules:
    """Return the rules of a source; those of Refloat's own clusters for a source that is not installed."""
    if source is None:
        return SourceRules()
    reason = find_missing_reason(source, {}, Capability.TUNNELS_BY_AGENT)
    return SourceRules(
        source.label,
        source.slug == DEFAULT_SOURCE,
        source.fixed_networking_fields,
        f"{reason} Refloat cannot forecast how many tunnels open or close." if reason else "",
    )


def list_fixed_fields(rules: SourceRules) -> list[tuple[str, str]]:
    """Return the keys of the fields that Refloat does not change, in display order, each with the reason."""
    return [
        (config_field.key, rules.fixed_fields[config_field.name])
        for config_field in FIELDS
        if config_field.name in rules.fixed_fields
    ]


def _to_clause(sentence: str) -> str:
    return sentence.removesuffix(".")
