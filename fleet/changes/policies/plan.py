"""What another announce TTL, load-balancing mode, HTTP close or reconnect interval will do, foreseen. Pure.

Rates are means over a whole cluster, per second; times are seconds. docs/changes.md, "Plans of policies".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fleet.protocol import durations
from fleet.protocol.recovery import discovery
from fleet.vocabulary.naming import natural_sort_key

#: A heartbeat comes every TTL/2 + U[0, TTL/10).
_MEAN_INTERVAL_FACTOR = 0.55
#: Below so many of our rounds we would see instances expire that are well.
_MIN_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class TTLLoad:
    """What a TTL costs, and how soon its loss is seen."""

    #: Until one that stopped heartbeating is taken for expired, at worst: a proxy by every agent, an auth by who lists.
    detection: float
    #: Writes to the backend by instances' heartbeats.
    writes: float
    #: Discovery messages to agents, and proxies named in them.
    messages: float
    names: float


@dataclass(frozen=True, slots=True)
class TTLOutlook:
    """A TTL before and after."""

    before: TTLLoad
    after: TTLLoad
    warnings: tuple[str, ...]


def ttl_load_of(
    ttl: float, *, instances: int, proxies: int, tunnels: int, compact: bool, role: str = "proxy"
) -> TTLLoad:
    """What a TTL costs `instances` of a role that have it, in a cluster of so many proxies and tunnels."""
    heartbeat_rate = 1 / (_MEAN_INTERVAL_FACTOR * ttl)
    if role == "auth":  # nobody discovers auths: their resource expires
        return TTLLoad(ttl, instances * heartbeat_rate, 0.0, 0.0)
    list_rate = 1 / discovery.full_interval(ttl, compact=compact)
    if compact:
        messages = tunnels * (proxies * heartbeat_rate + list_rate)
        names = tunnels * proxies * (heartbeat_rate + list_rate)
    else:
        messages = tunnels * list_rate
        names = messages * proxies
    detection = discovery.detection(ttl, compact=compact)
    return TTLLoad(detection, instances * heartbeat_rate, messages, names)


def forecast_ttl(
    before: float,
    after: float,
    *,
    role: str,
    instances: int,
    proxies: int,
    tunnels: int,
    compact: bool,
    round_interval: float,
) -> TTLOutlook:
    """Foresee another announce TTL of a role, "auth" or "proxy". Discovery follows the proxies' alone."""

    def load_of(ttl: float) -> TTLLoad:
        return ttl_load_of(
            ttl, instances=instances, proxies=proxies, tunnels=tunnels, compact=compact, role=role
        )

    warnings = []
    if after > before:
        warnings.append(
            f"Raising the TTL: until all {role} servers have it, those with the new one heartbeat every "
            f"{durations.format_seconds(round(after * _MEAN_INTERVAL_FACTOR))} or so and look expired in between to whoever "
            f"goes by the old {durations.format_seconds(before)}."
        )
    if role == "proxy" and load_of(after).detection > discovery.RFD_DETECTION:
        warnings.append(
            f"With a TTL of {durations.format_seconds(after)} agents drop a lost proxy after up to "
            f"{durations.format_seconds(round(load_of(after).detection))}, later than the "
            f"{durations.format_seconds(discovery.RFD_DETECTION)} that RFD 226 sets out to shorten. Lower the TTL."
        )
    if after < _MIN_ROUNDS * round_interval:
        warnings.append(
            f"A TTL below three of our rounds ({durations.format_seconds(_MIN_ROUNDS * round_interval)}): instances that "
            "are well would look expired to this console."
        )
    return TTLOutlook(load_of(before), load_of(after), tuple(warnings))


class TakesEffect(StrEnum):
    """When a policy that a process runs with reaches agents."""

    #: They read it each time they connect to an auth.
    AT_CONNECT = "at-connect"
    #: It is about the process itself: at once.
    AT_START = "at-start"


@dataclass(frozen=True, slots=True)
class PolicyProcess:
    """A process that has, or lacks, a policy."""

    name: str
    #: It runs with the wanted value already.
    has_value: bool
    #: Agents connected to it (auths), or with a tunnel on it (proxies).
    agent_count: int


@dataclass(frozen=True, slots=True)
class RestartOutlook:
    """Which processes must restart, and how many agents see it by that, and when."""

    restarted_names: tuple[str, ...]
    #: Agents that see it at once, because theirs is restarted, which makes them connect anew.
    affected_now_count: int
    #: Agents that connected before their process had it: they see it when they connect next, whenever that is.
    affected_later_count: int
    sentence: str


def forecast_restarts(processes: Mapping[str, PolicyProcess], effect: TakesEffect, stale_count: int = 0) -> RestartOutlook:
    """Foresee a policy that needs a restart, by instance id.

    `stale_agents`: of those on processes that have it already, how many read another one when they connected.
    """
    outdated_processes = [process for process in processes.values() if not process.has_value]
    moved_count = sum(process.agent_count for process in outdated_processes)
    names = tuple(sorted((process.name for process in outdated_processes), key=natural_sort_key))
    if not names:
        sentence = "No process needs a restart."
    else:
        sentence = f"{len(names)} of {len(processes)} must restart: {', '.join(names)}."
    if effect is TakesEffect.AT_CONNECT:
        sentence += f" {moved_count} agents read it when they connect anew after those restarts"
        sentence += (
            f"; {stale_count} more when they next connect, whenever that is." if stale_count else "."
        )
    elif moved_count:
        sentence += f" The {moved_count} agents there have it from then on."
    return RestartOutlook(names, moved_count, stale_count if effect is TakesEffect.AT_CONNECT else 0, sentence)
