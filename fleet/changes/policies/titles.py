"""Titles of policy changes, and values of policies as a person reads them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.protocol import durations
from fleet.protocol.durations import DurationError
from fleet.protocol.policies.env_policies import BY_NAME, PLURALS, EnvPolicy, PolicyValueKind
from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.service_config import ServiceConfigError

#: Values by target and policy.
_Values = Mapping[str, Mapping[str, str]]


def format_policy_value(policy: EnvPolicy, text: str) -> str:
    """Return a value as people read it: `on`, `10 min`, `never`; JSON as the mode that it sets."""
    if policy.kind is PolicyValueKind.SWITCH:
        return {"true": "on", "false": "off"}.get(text, text)
    if policy.kind is not PolicyValueKind.JSON:
        return _format_duration(text) if text else "never"
    try:
        config = service_config.from_environment({policy.name: text} if text else {})
    except ServiceConfigError:
        return "invalid"
    return f"{config.mode}, health check" if config.health_check else config.mode.value


def describe_changes(before: _Values, after: _Values, instance_names: Mapping[str, str]) -> str:
    """Return what a change of desired values does, as a title. `instance_names`: by id."""
    clauses = []
    for target in sorted({*before, *after}):
        old, new = before.get(target, {}), after.get(target, {})
        names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
        owner = f"all {PLURALS[target]}" if target in PLURALS else instance_names.get(target, target)
        if len(names) == 1:
            clauses.append(_clause_of(BY_NAME[names[0]], new.get(names[0], ""), owner))
        elif names:
            clauses.append(f"Set {len(names)} policies of {owner}")
    if not clauses:
        return "Roll out the present desired values"
    first_clause, *later_clauses = clauses
    return " and ".join([first_clause, *(f"{clause[:1].lower()}{clause[1:]}" for clause in later_clauses)])


def label_of(policy: EnvPolicy) -> str:
    """Return the name of a policy inside a sentence: `announce TTL`, `agent reconnect mode`."""
    label = policy.label.partition(" (")[0]
    return label if label[1:2].isupper() else f"{label[:1].lower()}{label[1:]}"


def _clause_of(policy: EnvPolicy, text: str, owner: str) -> str:
    if not text:
        return f"Stop managing {label_of(policy)} of {owner}"
    value = format_policy_value(policy, text)
    if policy.kind is PolicyValueKind.SWITCH:
        return f"Turn {value} {label_of(policy)} of {owner}"
    return f"Set {label_of(policy)} of {owner} to {value}"


def _format_duration(text: str) -> str:
    """Return a duration with its unit as people read it; any other text unchanged."""
    try:
        return durations.format_readable(durations.parse(text))
    except DurationError:
        return text
