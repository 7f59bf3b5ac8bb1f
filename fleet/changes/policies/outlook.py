"""The expected effect of a policy change: load, restarts, and which agents it reaches when. Pure.

It is stored as JSON with the change, and shown by page, API and CLI. docs/reference/policies.md, "Plan".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fleet.changes.policies.forecasts import (
    EffectTime,
    PolicyInstance,
    forecast_restarts,
    forecast_ttl,
    ttl_load_of,
)
from fleet.protocol import durations
from fleet.protocol.policies import env_policies, policy_json
from fleet.protocol.policies.env_policies import BY_NAME, PLURALS
from fleet.protocol.recovery import announce, discovery, reconnect_schedule, service_config
from fleet.protocol.recovery.service_config import (
    RFD_VARIABLE,
    UPSTREAM_VARIABLE,
    PickHealthyMode,
    ServiceConfig,
    ServiceConfigError,
)
from fleet.vocabulary.natural_order import natural_sort_key

_BALANCING_VARIABLES = (RFD_VARIABLE, UPSTREAM_VARIABLE)
_TTL_VARIABLES = {"auth": announce.AUTH_TTL_VARIABLE, "proxy": announce.PROXY_TTL_VARIABLE}
#: Mean age at which a tunnel reconnects, in intervals: one interval and up to half of another.
_MEAN_RECONNECT_FACTOR = 1.25

#: Mode and health check that an agent received when it connected.
BalancingMode = tuple[str, bool]


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """The fleet data from which a policy change is planned."""

    #: Number of agents connected to an auth, or of tunnels to a proxy, by instance id.
    load_counts: Mapping[str, int]
    #: Number of agents by what they received, by id of their auth.
    balancing_counts: Mapping[str, Mapping[BalancingMode, int]]
    #: Number of agents that are not retired.
    agent_count: int
    #: Seconds between two rounds of Refloat.
    round_interval: float
    #: End of the newest round, seconds since the epoch, and its age, seconds.
    as_of: float
    age_seconds: float


@dataclass(frozen=True, slots=True)
class PlannedInstance:
    """An instance with the values in effect before and after the change, by policy; empty where not reported."""

    id: str
    name: str
    role: str
    is_restarted: bool
    current_values: Mapping[str, str] = field(default_factory=dict)
    planned_values: Mapping[str, str] = field(default_factory=dict)

    def changes_policy(self, name: str) -> bool:
        """Return whether a policy of the instance changes."""
        return name in self.current_values and not env_policies.is_same_value(
            name, self.current_values[name], self.planned_values[name]
        )


def outlook_of(instances: Sequence[PlannedInstance], snapshot: PolicySnapshot) -> dict[str, Any]:
    """Return `ttl` (rows of numbers), `effects` (rows of restarts and affected agents), `notes`, and the data's age."""
    ttl_rows = [
        row
        for role in env_policies.ROLES
        for row in _ttl_rows_of([instance for instance in instances if instance.role == role], snapshot)
    ]
    effect_rows = [*_balancing_rows_of(instances, snapshot), *_start_effect_rows_of(instances, snapshot)]
    return {
        "ttl": ttl_rows,
        "effects": effect_rows,
        "notes": [warning for row in ttl_rows for warning in row["warnings"]]
        + [row["explanation"] for row in effect_rows],
        "as_of": snapshot.as_of,
        "data_age_seconds": round(snapshot.age_seconds, 1),
        "agent_count": snapshot.agent_count,
    }


def describe_ttl_row(row: Mapping[str, Any]) -> str:
    """Return a row of `ttl` as a sentence."""
    before, after = row["before"], row["after"]
    sentence = (
        f"{row['title']}: a lost {row['role']} is detected within {after['detection_time']} (now "
        f"{before['detection_time']})"
    )
    sentence += f"; heartbeat writes {after['writes_per_second']}/s (now {before['writes_per_second']}/s)"
    if row["role"] == "proxy":
        sentence += (
            f"; discovery messages {after['messages_per_second']}/s (now {before['messages_per_second']}/s)"
        )
    return sentence


def _ttl_rows_of(instances: Sequence[PlannedInstance], snapshot: PolicySnapshot) -> Iterable[dict[str, Any]]:
    """Yield one row for all instances with the same values before and after."""
    groups: dict[tuple[float, float, bool, bool], list[PlannedInstance]] = {}
    for instance in instances:
        ttl_variable = _TTL_VARIABLES[instance.role]
        if not (instance.changes_policy(ttl_variable) or instance.changes_policy(discovery.COMPACT_VARIABLE)):
            continue
        try:
            key = (
                _ttl_seconds_of(instance.current_values, ttl_variable),
                _ttl_seconds_of(instance.planned_values, ttl_variable),
                _is_compact(instance.current_values),
                _is_compact(instance.planned_values),
            )
        except ValueError:
            continue  # the instance reports a value that Refloat would not accept
        groups.setdefault(key, []).append(instance)
    for (before, after, was_compact, compact), group in groups.items():
        yield _ttl_row_of(group, before, after, was_compact, compact, instances, snapshot)


def _ttl_row_of(
    group: Sequence[PlannedInstance],
    before: float,
    after: float,
    was_compact: bool,
    compact: bool,
    role_instances: Sequence[PlannedInstance],
    snapshot: PolicySnapshot,
) -> dict[str, Any]:
    role = group[0].role
    group_tunnel_count = sum(snapshot.load_counts.get(instance.id, 0) for instance in group)
    role_tunnel_count = sum(snapshot.load_counts.get(instance.id, 0) for instance in role_instances)
    load_arguments = {"instance_count": len(group), "proxy_count": len(group)}

    def tunnel_count_of(*, compact: bool) -> int:
        # In compact mode each heartbeat of these proxies goes to every tunnel; else each proxy serves its own tunnels.
        return role_tunnel_count if compact else group_tunnel_count

    ttl_outlook = forecast_ttl(
        before, after, role=role, tunnel_count=tunnel_count_of(compact=compact), compact=compact,
        round_interval=snapshot.round_interval, **load_arguments,
    )  # fmt: skip
    previous_load = ttl_load_of(
        before,
        tunnel_count=tunnel_count_of(compact=was_compact),
        compact=was_compact,
        role=role,
        **load_arguments,
    )
    instances_text = f"{len(group)} {PLURALS[role] if len(group) > 1 else role}"
    title = f"{instances_text}, TTL {durations.format_readable(before)} to {durations.format_readable(after)}"
    if was_compact != compact:
        title += f", compact discovery {'on' if compact else 'off'}"
    return {
        "role": role,
        "title": title,
        "instances": sorted((instance.name for instance in group), key=natural_sort_key),
        "before": _load_row_of(asdict(previous_load)),
        "after": _load_row_of(asdict(ttl_outlook.after)),
        "warnings": list(ttl_outlook.warnings),
    }


def _load_row_of(load: Mapping[str, float]) -> dict[str, Any]:
    return {
        "detection_time": durations.format_readable(round(load["detection_seconds"], 1)),
        "detection_seconds": load["detection_seconds"],
        **{
            name: float(f"{load[name]:.3g}")
            for name in ("writes_per_second", "messages_per_second", "names_per_second")
        },
    }


def _balancing_rows_of(
    instances: Sequence[PlannedInstance], snapshot: PolicySnapshot
) -> Iterable[dict[str, Any]]:
    """Yield the effect of a change of the load balancing of agents, which two variables set."""
    auths = [auth for auth in instances if auth.role == "auth" and auth.current_values]
    changed_auths = [
        auth
        for auth in auths
        if _service_config_of(auth.current_values) != _service_config_of(auth.planned_values)
    ]
    if not changed_auths:
        return
    desired_config = _service_config_of(changed_auths[0].planned_values)
    stale_count = sum(
        count
        for auth in auths
        if auth not in changed_auths
        and not auth.is_restarted
        and (config := _service_config_of(auth.current_values)) is not None
        for mode, count in snapshot.balancing_counts.get(auth.id, {}).items()
        if mode != _balancing_mode_of(config)
    )
    effect_row = _effect_row_of(
        "Agent reconnect mode",
        _describe_config(desired_config),
        auths,
        changed_auths,
        EffectTime.AT_CONNECT,
        snapshot.load_counts,
        stale_count,
    )
    for warning in policy_json.warnings(desired_config) if desired_config is not None else ():
        effect_row["explanation"] += f" {warning}"
    yield effect_row


def _start_effect_rows_of(
    instances: Sequence[PlannedInstance], snapshot: PolicySnapshot
) -> Iterable[dict[str, Any]]:
    """Yield the effects of the policies that instances read when they start, except TTLs."""
    for name in (env_policies.HTTP_CLOSE_VARIABLE, reconnect_schedule.INTERVAL_VARIABLE):
        role_instances = [
            instance
            for instance in instances
            if instance.role == BY_NAME[name].role and instance.current_values
        ]
        changed_instances = [instance for instance in role_instances if instance.changes_policy(name)]
        if not changed_instances:
            continue
        planned_value = changed_instances[0].planned_values[name]
        # No agent is connected by HTTP.
        load_counts = {} if name == env_policies.HTTP_CLOSE_VARIABLE else snapshot.load_counts
        effect_row = _effect_row_of(
            BY_NAME[name].label,
            planned_value or "never",
            role_instances,
            changed_instances,
            EffectTime.AT_START,
            load_counts,
        )
        tunnel_count = sum(
            snapshot.load_counts.get(instance.id, 0)
            for instance in changed_instances
            if instance.is_restarted
        )
        if name == env_policies.HTTP_CLOSE_VARIABLE:
            effect_row["explanation"] += (
                " This policy affects HTTP clients only. Agents keep their connections."
            )
        elif planned_value:
            interval = env_policies.duration_seconds(name, planned_value)
            effect_row["explanation"] += (
                f" Each tunnel reconnects {durations.format_readable(interval)} to "
                f"{durations.format_readable(1.5 * interval)} after it was opened: "
                f"{tunnel_count / (_MEAN_RECONNECT_FACTOR * interval):.2g} reconnects per second for "
                f"{tunnel_count:,} tunnels."
            )
        yield effect_row


def _effect_row_of(
    label: str,
    value_text: str,
    role_instances: Sequence[PlannedInstance],
    changed_instances: Sequence[PlannedInstance],
    effect_time: EffectTime,
    load_counts: Mapping[str, int],
    stale_count: int = 0,
) -> dict[str, Any]:
    """Return the effect of one policy: restarts and affected agents. `load_counts`: see PolicySnapshot."""
    policy_instances = {
        instance.id: PolicyInstance(
            instance.name, instance not in changed_instances, load_counts.get(instance.id, 0)
        )
        for instance in role_instances
    }
    restart_outlook = forecast_restarts(policy_instances, effect_time, stale_count)
    manual_restarts = sorted(
        (instance.name for instance in changed_instances if not instance.is_restarted), key=natural_sort_key
    )
    explanation = f"{label}: {value_text}. {restart_outlook.explanation}"
    if manual_restarts:
        explanation += f" This change does not restart {', '.join(manual_restarts)}: restart manually."
    return {
        "label": label,
        "value": value_text,
        "restarted_instances": list(restart_outlook.restarted_names),
        "manual_restarts": manual_restarts,
        "affected_now_count": restart_outlook.affected_now_count,
        "affected_later_count": restart_outlook.affected_later_count,
        "explanation": explanation,
    }


def _service_config_of(values: Mapping[str, str]) -> ServiceConfig | None:
    """Return the load-balancing config in policy values; None when the values are invalid."""
    try:
        return service_config.from_environment(
            {name: values[name] for name in _BALANCING_VARIABLES if values.get(name)}
        )
    except ServiceConfigError:
        return None


def _balancing_mode_of(config: ServiceConfig) -> BalancingMode:
    reconnects = config.mode is PickHealthyMode.RECONNECT
    # In pick_first mode agents do not check health, and report so.
    return ("reconnect" if reconnects else "pick_first", reconnects and config.health_check)


def _describe_config(config: ServiceConfig | None) -> str:
    if config is None:
        return "invalid"
    mode, health_check = _balancing_mode_of(config)
    return f"{mode}, health check" if health_check else mode


def _ttl_seconds_of(values: Mapping[str, str], name: str) -> float:
    return announce.parse_ttl(values.get(name) or BY_NAME[name].default, name=name)


def _is_compact(values: Mapping[str, str]) -> bool:
    name = discovery.COMPACT_VARIABLE
    return name in values and BY_NAME[name].read({name: values[name]}) is True
