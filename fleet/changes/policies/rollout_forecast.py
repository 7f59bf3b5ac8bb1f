"""What a rollout does to connections: reconnects, agents at risk, and the loads of instances afterwards. Pure.

While an instance restarts, its agents move to its peers, also to those that restart later, so that an agent may
reconnect several times, and the instance that restarts last has few agents afterwards. docs/reference/policies.md,
"Plan".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from types import MappingProxyType

from fleet.changes.load_forecast import InstanceLoadForecast, round_shares
from fleet.protocol import durations
from fleet.vocabulary.instances import InstanceKind


@dataclass(frozen=True, slots=True)
class RolloutInstance:
    """An auth or proxy before a rollout."""

    id: str
    name: str
    kind: InstanceKind
    #: Number of agents connected to the auth, or of tunnels to the proxy.
    load: int
    #: Agents can connect to the instance.
    is_usable: bool = True
    #: Of a proxy: agents whose only tunnel ends there.
    sole_agent_count: int = 0


@dataclass(frozen=True, slots=True)
class RolloutRisk:
    """The agents at risk while instances restart. Numbers are expected peaks at one time."""

    #: Agents with tunnels only to proxies that restart.
    proxy_agent_count: int = 0
    #: Agents connected to auths that restart.
    auth_agent_count: int = 0
    #: Of `proxy_agent_count`: agents that no other proxy can take, so that they are unreachable during the restart.
    unreachable_count: int = 0
    #: Of `auth_agent_count`: agents that no other auth can take, whose resources may expire.
    unregistered_count: int = 0


@dataclass(frozen=True, slots=True)
class RolloutForecast:
    """The expected effect of the restarts of a rollout."""

    #: Connections that agents open again.
    reconnect_count: int
    #: The instances of the kinds that restart, in their order.
    loads: tuple[InstanceLoadForecast, ...]
    risk: RolloutRisk


def forecast_rollout(
    instances: Sequence[RolloutInstance],
    restart_order: Sequence[str],
    concurrency: int,
    agent_count: int,
    shared_agent_counts: Mapping[frozenset[str], int] = MappingProxyType({}),
) -> RolloutForecast:
    """Return the effect of restarts, `concurrency` instances at a time. `restart_order`: ids.

    `agent_count`: agents of the fleet; `shared_agent_counts`: those with several tunnels, by the ids of their proxies.
    An agent chooses at random among the instances that it can connect to.
    """
    by_id = {instance.id: instance for instance in instances}
    loads = {instance.id: float(instance.load) for instance in instances}
    sole_agents = {instance.id: float(instance.sole_agent_count) for instance in instances}
    risks: list[RolloutRisk] = []
    reconnect_count = 0.0
    restarting_ids = [instance_id for instance_id in restart_order if instance_id in by_id]
    for start in range(0, len(restarting_ids), concurrency):
        group = restarting_ids[start : start + concurrency]
        risks.append(_risk_of(group, instances, loads, sole_agents, shared_agent_counts))
        for instance_id in group:
            reconnect_count += loads[instance_id]
            peers = _find_peers(by_id[instance_id], instances, group)
            if not _is_mesh(by_id[instance_id], peers, instances, agent_count, loads):
                _move_load(instance_id, peers, loads)
            _move_load(instance_id, peers, sole_agents)
    kinds = {by_id[instance_id].kind for instance_id in restarting_ids}
    counts_after = {
        instance_id: count
        for kind in kinds
        for instance_id, count in round_shares(
            {instance.id: loads[instance.id] for instance in instances if instance.kind is kind}
        ).items()
    }
    return RolloutForecast(
        round(reconnect_count),
        tuple(
            InstanceLoadForecast(instance.name, instance.kind, instance.load, counts_after[instance.id])
            for instance in instances
            if instance.id in counts_after
        ),
        RolloutRisk(*(max(counts) for counts in zip(*map(astuple, risks), strict=True))),
    )


def describe_forecast(forecast: RolloutForecast) -> str:
    """Return the reconnects as a sentence; empty when none are expected."""
    if not forecast.reconnect_count:
        return ""
    sentence = f"Agents reconnect about {forecast.reconnect_count:,} times"
    restarted_load = sum(load.before for load in forecast.loads)
    if forecast.reconnect_count > restarted_load:
        sentence += ", because an agent can move to an instance that restarts later"
    return f"{sentence}."


def describe_risk(
    risk: RolloutRisk, drain_seconds: int, restart_kinds: Collection[InstanceKind]
) -> list[str]:
    """Return what restarts mean for agents and user connections, as sentences. `restart_kinds`: of the instances."""
    sentences = []
    if InstanceKind.PROXY in restart_kinds:
        sentences.append(_describe_proxy_risk(risk))
    if risk.auth_agent_count:
        sentences.append(_describe_auth_risk(risk))
    if InstanceKind.PROXY in restart_kinds:
        limit = (
            durations.format_readable(drain_seconds) if drain_seconds else "its own drain time (`--drain`)"
        )
        sentences.append(
            f"A proxy that restarts keeps user connections open for up to {limit} after it advised its agents to "
            "reconnect, and then cuts the others. New user connections use another proxy."
        )
    return sentences


def _describe_proxy_risk(risk: RolloutRisk) -> str:
    if not risk.proxy_agent_count:
        return "No agent loses its last tunnel: each also has one to a proxy that does not restart at the same time."
    agents = "agent has" if risk.proxy_agent_count == 1 else "agents have"
    sentence = (
        f"At most about {risk.proxy_agent_count:,} {agents} tunnels only to proxies that restart at the same time, and "
        "are at risk until they are connected to another proxy. "
    )
    if not risk.unreachable_count:
        return f"{sentence}None loses its last tunnel: agents connect to another proxy before they leave."
    return (
        f"{sentence}{risk.unreachable_count:,} become unreachable during the restart, because no other proxy accepts "
        "tunnels."
    )


def _describe_auth_risk(risk: RolloutRisk) -> str:
    agents = "agent is" if risk.auth_agent_count == 1 else "agents are"
    sentence = (
        f"At most about {risk.auth_agent_count:,} {agents} connected to auths that restart at the same time, and are "
        "at risk until they are connected to another auth."
    )
    if risk.unregistered_count:
        sentence += (
            " No other auth accepts connections: agents whose resource expires meanwhile become unreachable."
        )
    return sentence


def _risk_of(
    group: Collection[str],
    instances: Sequence[RolloutInstance],
    loads: Mapping[str, float],
    sole_agents: Mapping[str, float],
    shared_agent_counts: Mapping[frozenset[str], int],
) -> RolloutRisk:
    """Return the agents at risk while the instances of a group restart."""
    members = [instance for instance in instances if instance.id in group]
    auths, proxies = (
        [member for member in members if member.kind is kind]
        for kind in (InstanceKind.AUTH, InstanceKind.PROXY)
    )
    auth_agent_count = round(sum(loads[auth.id] for auth in auths))
    # Agents with several tunnels count where they are now: they hardly ever move to the same few proxies.
    proxy_agent_count = round(
        sum(sole_agents[proxy.id] for proxy in proxies)
        + sum(count for ids, count in shared_agent_counts.items() if ids <= set(group))
    )
    return RolloutRisk(
        proxy_agent_count,
        auth_agent_count,
        proxy_agent_count if proxies and not _find_peers(proxies[0], instances, group) else 0,
        auth_agent_count if auths and not _find_peers(auths[0], instances, group) else 0,
    )


def _find_peers(
    instance: RolloutInstance, instances: Sequence[RolloutInstance], group: Collection[str]
) -> list[RolloutInstance]:
    """Return the instances that can take the agents of a restarting one."""
    return [
        peer for peer in instances if peer.kind is instance.kind and peer.is_usable and peer.id not in group
    ]


def _is_mesh(
    instance: RolloutInstance,
    peers: Collection[RolloutInstance],
    instances: Iterable[RolloutInstance],
    agent_count: int,
    loads: Mapping[str, float],
) -> bool:
    """Return whether every agent has a tunnel to every proxy, and opens it again after the restart."""
    if instance.kind is not InstanceKind.PROXY or not agent_count:
        return False
    tunnel_count = sum(loads[peer.id] for peer in instances if peer.kind is InstanceKind.PROXY)
    return round(tunnel_count / agent_count) > len(peers)


def _move_load(instance_id: str, peers: Collection[RolloutInstance], loads: dict[str, float]) -> None:
    """Move the load of a restarting instance to its peers."""
    for peer in peers:
        loads[peer.id] += loads[instance_id] / len(peers)
    if peers:
        loads[instance_id] = 0.0
