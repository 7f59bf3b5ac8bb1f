"""Presets of policies, and the usual values of each policy, so that nobody has to write JSON. Pure.

docs/reference/policies.md, "Presets".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.protocol.policies import env_policies, policy_json
from fleet.protocol.policies.env_policies import HTTP_CLOSE_VARIABLE, EnvPolicy, PolicyValueKind
from fleet.protocol.recovery import announce, discovery, reconnect_schedule
from fleet.protocol.recovery.service_config import (
    RFD_VARIABLE,
    UPSTREAM_VARIABLE,
    PickHealthyMode,
    ServiceConfig,
)

_FAILOVER_ON = ServiceConfig(PickHealthyMode.RECONNECT, "")
_FAILOVER_OFF = ServiceConfig(PickHealthyMode.PICK_FIRST)


@dataclass(frozen=True, slots=True)
class PolicyPreset:
    """Values of several policies under a name."""

    slug: str
    label: str
    #: What the values do together, as a sentence.
    help: str
    #: Values by role and policy.
    values: Mapping[str, Mapping[str, str]]

    def apply_to(self, desired_values: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
        """Return desired values with those of the preset."""
        merged_values = {target: dict(values) for target, values in desired_values.items()}
        for role, values in self.values.items():
            merged_values[role] = {**merged_values.get(role, {}), **values}
        return merged_values

    def is_in_effect(self, desired_values: Mapping[str, Mapping[str, str]]) -> bool:
        """Return whether all values of the preset are the desired values of their roles."""
        return all(
            env_policies.is_same_value(name, text, desired_values.get(role, {}).get(name, ""))
            for role, values in self.values.items()
            for name, text in values.items()
        )


@dataclass(frozen=True, slots=True)
class PolicyOption:
    """A usual value of one policy."""

    label: str
    text: str
    #: What the value does, as a sentence; empty where the label says it.
    help: str = ""


PRESETS = (
    PolicyPreset(
        "recommended",
        "Recommended",
        "Agents leave an unhealthy auth, and a lost auth or proxy is detected within about 2 min.",
        {
            "auth": {
                RFD_VARIABLE: policy_json.document(_FAILOVER_ON, RFD_VARIABLE),
                announce.AUTH_TTL_VARIABLE: "1m",
                HTTP_CLOSE_VARIABLE: "true",
            },
            "proxy": {announce.PROXY_TTL_VARIABLE: "1m", discovery.COMPACT_VARIABLE: "true"},
        },
    ),
    PolicyPreset(
        "failover",
        "Failover on",
        "Agent reconnect mode: agents check the health of their auth, and leave an unhealthy one for another auth.",
        {"auth": {RFD_VARIABLE: policy_json.document(_FAILOVER_ON, RFD_VARIABLE)}},
    ),
)
PRESETS_BY_SLUG = {preset.slug: preset for preset in PRESETS}

_SWITCH_OPTIONS = (PolicyOption("On", "true"), PolicyOption("Off", "false"))
_TTL_OPTIONS = tuple(
    PolicyOption(label, text) for label, text in (("10 s", "10s"), ("1 min", "1m"), ("10 min", "10m"))
)
_INTERVAL_OPTIONS = tuple(
    PolicyOption(label, text) for label, text in (("1 h", "1h"), ("6 h", "6h"), ("24 h", "24h"))
)


def options_of(policy: EnvPolicy) -> tuple[PolicyOption, ...]:
    """Return the usual values of a policy."""
    if policy.kind is PolicyValueKind.SWITCH:
        return _SWITCH_OPTIONS
    if policy.name in (RFD_VARIABLE, UPSTREAM_VARIABLE):
        return (
            PolicyOption(
                "Reconnect, with health check (failover on)",
                policy_json.document(_FAILOVER_ON, policy.name),
                "Agents check the health of their auth and leave an unhealthy one (mode reconnect).",
            ),
            PolicyOption(
                "Pick first, without health check (failover off)",
                policy_json.document(_FAILOVER_OFF, policy.name),
                "Agents keep their connection until it breaks (mode pick_first).",
            ),
        )
    return _INTERVAL_OPTIONS if policy.name == reconnect_schedule.INTERVAL_VARIABLE else _TTL_OPTIONS
