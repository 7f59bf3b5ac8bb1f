"""What another announce TTL, load-balancing mode, HTTP close or reconnect interval will do, foreseen. Pure.

Rates are means over a whole cluster, per second; times are seconds. docs/changes.md, "Plans of policies".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fleet.protocol import durations
from fleet.protocol.recovery import discovery
from fleet.vocabulary.naming import natural

#: A heartbeat comes every TTL/2 + U[0, TTL/10).
_MEAN_INTERVAL = 0.55
#: Below so many of our rounds we would see instances expire that are well.
_ROUNDS = 3


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


def ttl_load(
    ttl: float, *, instances: int, proxies: int, tunnels: int, compact: bool, role: str = "proxy"
) -> TTLLoad:
    """What a TTL costs `instances` of a role that have it, in a cluster of so many proxies and tunnels."""
    beats = 1 / (_MEAN_INTERVAL * ttl)
    if role == "auth":  # nobody discovers auths: their resource expires
        return TTLLoad(ttl, instances * beats, 0.0, 0.0)
    lists = 1 / discovery.full_interval(ttl, compact=compact)
    if compact:
        messages = tunnels * (proxies * beats + lists)
        names = tunnels * proxies * (beats + lists)
    else:
        messages = tunnels * lists
        names = messages * proxies
    detection = discovery.detection(ttl, compact=compact)
    return TTLLoad(detection, instances * beats, messages, names)


def announce_ttl(
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

    def load(ttl: float) -> TTLLoad:
        return ttl_load(
            ttl, instances=instances, proxies=proxies, tunnels=tunnels, compact=compact, role=role
        )

    warnings = []
    if after > before:
        warnings.append(
            f"Raising the TTL: until all {role} servers have it, those with the new one heartbeat every "
            f"{durations.format_seconds(round(after * _MEAN_INTERVAL))} or so and look expired in between to whoever "
            f"goes by the old {durations.format_seconds(before)}."
        )
    if role == "proxy" and load(after).detection > discovery.RFD_DETECTION:
        warnings.append(
            f"With a TTL of {durations.format_seconds(after)} agents drop a lost proxy after up to "
            f"{durations.format_seconds(round(load(after).detection))}, later than the "
            f"{durations.format_seconds(discovery.RFD_DETECTION)} that RFD 226 sets out to shorten. Lower the TTL."
        )
    if after < _ROUNDS * round_interval:
        warnings.append(
            f"A TTL below three of our rounds ({durations.format_seconds(_ROUNDS * round_interval)}): instances that "
            "are well would look expired to this console."
        )
    return TTLOutlook(load(before), load(after), tuple(warnings))


class TakesEffect(StrEnum):
    """When a policy that a process runs with reaches agents."""

    #: They read it each time they connect to an auth.
    AT_CONNECT = "at-connect"
    #: It is about the process itself: at once.
    AT_START = "at-start"


@dataclass(frozen=True, slots=True)
class Running:
    """A process that has, or lacks, a policy."""

    name: str
    #: It runs with the wanted value already.
    has_it: bool
    #: Agents connected to it (auths), or with a tunnel on it (proxies).
    agents: int


@dataclass(frozen=True, slots=True)
class RestartOutlook:
    """Which processes must restart, and how many agents see it by that, and when."""

    restart: tuple[str, ...]
    #: Agents that see it at once, because theirs is restarted, which makes them connect anew.
    agents_now: int
    #: Agents that connected before their process had it: they see it when they connect next, whenever that is.
    agents_later: int
    sentence: str


def restarts(running: Mapping[str, Running], effect: TakesEffect, stale_agents: int = 0) -> RestartOutlook:
    """Foresee a policy that needs a restart, by instance id.

    `stale_agents`: of those on processes that have it already, how many read another one when they connected.
    """
    lacking = [one for one in running.values() if not one.has_it]
    moved = sum(one.agents for one in lacking)
    names = tuple(sorted((one.name for one in lacking), key=natural))
    if not names:
        sentence = "No process needs a restart."
    else:
        sentence = f"{len(names)} of {len(running)} must restart: {', '.join(names)}."
    if effect is TakesEffect.AT_CONNECT:
        sentence += f" {moved} agents read it when they connect anew after those restarts"
        sentence += (
            f"; {stale_agents} more when they next connect, whenever that is." if stale_agents else "."
        )
    elif moved:
        sentence += f" The {moved} agents there have it from then on."
    return RestartOutlook(names, moved, stale_agents if effect is TakesEffect.AT_CONNECT else 0, sentence)
