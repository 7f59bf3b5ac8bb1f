"""The expected effect of another announce TTL, and of policies that need restarts. Pure.

Rates are means over a whole cluster, per second; times are seconds. docs/reference/policies.md, "Plan".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fleet.protocol import durations
from fleet.protocol.recovery import discovery
from fleet.vocabulary.natural_order import natural_sort_key

#: Mean heartbeat interval, in TTLs: TTL/2 + U[0, TTL/10).
_MEAN_HEARTBEAT_FACTOR = 0.55
#: Shortest TTL, in rounds of Refloat: with a shorter one, healthy instances would look expired.
_MIN_TTL_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class TTLLoad:
    """The load that a TTL causes, and the time until a lost instance is detected."""

    #: Worst-case time until an instance without heartbeats counts as expired: proxies for all agents, auths in lists.
    detection_seconds: float
    #: Backend writes by heartbeats of instances, per second.
    writes_per_second: float
    #: Discovery messages to agents, and proxy names in them, per second.
    messages_per_second: float
    names_per_second: float


@dataclass(frozen=True, slots=True)
class TTLOutlook:
    """The load of a TTL before and after a change."""

    before: TTLLoad
    after: TTLLoad
    warnings: tuple[str, ...]


def ttl_load_of(
    ttl: float,
    *,
    instance_count: int,
    proxy_count: int,
    tunnel_count: int,
    compact: bool,
    role: str = "proxy",
) -> TTLLoad:
    """Return the load of a TTL, seconds, that `instance_count` instances of a role use."""
    heartbeat_rate = 1 / (_MEAN_HEARTBEAT_FACTOR * ttl)
    if role == "auth":  # agents do not discover auths: their resource expires
        return TTLLoad(ttl, instance_count * heartbeat_rate, 0.0, 0.0)
    list_rate = 1 / discovery.full_interval(ttl, compact=compact)
    if compact:
        message_rate = tunnel_count * (proxy_count * heartbeat_rate + list_rate)
        name_rate = tunnel_count * proxy_count * (heartbeat_rate + list_rate)
    else:
        message_rate = tunnel_count * list_rate
        name_rate = message_rate * proxy_count
    detection_seconds = discovery.detection_seconds(ttl, compact=compact)
    return TTLLoad(detection_seconds, instance_count * heartbeat_rate, message_rate, name_rate)


def forecast_ttl(
    before: float,
    after: float,
    *,
    role: str,
    instance_count: int,
    proxy_count: int,
    tunnel_count: int,
    compact: bool,
    round_interval: float,
) -> TTLOutlook:
    """Return the effect of another announce TTL of a role, "auth" or "proxy"; only the proxies' affects discovery."""

    def load_of(ttl: float) -> TTLLoad:
        return ttl_load_of(
            ttl,
            instance_count=instance_count,
            proxy_count=proxy_count,
            tunnel_count=tunnel_count,
            compact=compact,
            role=role,
        )

    warnings = []
    if after > before:
        warnings.append(
            f"The TTL increases. {'An' if role == 'auth' else 'A'} {role} with the new TTL sends a heartbeat only "
            f"about every "
            f"{durations.format_readable(round(after * _MEAN_HEARTBEAT_FACTOR))}. During the rollout, it can look "
            "expired to instances and agents "
            f"that still use the old TTL of {durations.format_readable(before)}."
        )
    if role == "proxy" and load_of(after).detection_seconds > discovery.RFD_DETECTION_SECONDS:
        warnings.append(
            f"With a TTL of {durations.format_readable(after)}, agents detect a lost proxy after up to "
            f"{durations.format_readable(round(load_of(after).detection_seconds))}. That is longer than the "
            f"{durations.format_readable(discovery.RFD_DETECTION_SECONDS)} that RFD 226 wants to shorten. "
            "Choose a shorter TTL."
        )
    if after < _MIN_TTL_ROUNDS * round_interval:
        warnings.append(
            "The TTL is shorter than three polls of Refloat "
            f"({durations.format_readable(_MIN_TTL_ROUNDS * round_interval)}): "
            "Refloat may show healthy instances as expired."
        )
    return TTLOutlook(load_of(before), load_of(after), tuple(warnings))


class EffectTime(StrEnum):
    """When a policy of an instance takes effect for agents."""

    #: Agents read the policy each time they connect to an auth.
    AT_CONNECT = "at-connect"
    #: The policy affects the instance itself, from its start.
    AT_START = "at-start"


@dataclass(frozen=True, slots=True)
class PolicyInstance:
    """An instance that a policy is for."""

    name: str
    #: The desired value is already in effect.
    has_desired_value: bool
    #: Number of agents connected to the auth, or with a tunnel to the proxy.
    agent_count: int


@dataclass(frozen=True, slots=True)
class RestartOutlook:
    """The instances that must restart, and the number of agents that the policy reaches then and later."""

    restarted_names: tuple[str, ...]
    #: Agents that get the policy with the restart, because they reconnect.
    affected_now_count: int
    #: Agents that connected before their instance had the policy, and get it with their next connection.
    affected_later_count: int
    explanation: str


def forecast_restarts(
    instances: Mapping[str, PolicyInstance], effect_time: EffectTime, stale_count: int = 0
) -> RestartOutlook:
    """Return the effect of a policy that needs a restart. `instances`: by id.

    `stale_count`: number of agents of instances that have the policy already, which received another value when they
    connected.
    """
    outdated_instances = [instance for instance in instances.values() if not instance.has_desired_value]
    affected_now_count = sum(instance.agent_count for instance in outdated_instances)
    names = tuple(sorted((instance.name for instance in outdated_instances), key=natural_sort_key))
    if not names:
        sentence = "No instance needs a restart."
    else:
        sentence = (
            f"{len(names)} of {len(instances)} instance{'' if len(instances) == 1 else 's'} must restart: "
            f"{', '.join(names)}."
        )
    if effect_time is EffectTime.AT_CONNECT:
        sentence += f" {affected_now_count:,} agents get the new value when they reconnect after the restart"
        sentence += f", and {stale_count:,} more with their next connection." if stale_count else "."
    elif affected_now_count:
        sentence += f" It applies to the {affected_now_count:,} agents of these instances from then on."
    return RestartOutlook(
        names, affected_now_count, stale_count if effect_time is EffectTime.AT_CONNECT else 0, sentence
    )
