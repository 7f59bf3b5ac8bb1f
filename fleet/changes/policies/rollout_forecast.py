"""What a rollout does to connections: how often agents reconnect, and the loads of instances afterwards. Pure.

While an instance restarts, its agents move to its peers, also to those that restart later, so that an agent may
reconnect several times, and the instance that restarts last has few agents afterwards. docs/reference/policies.md,
"Plan".
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fleet.changes.load_forecast import InstanceLoadForecast, round_shares
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


@dataclass(frozen=True, slots=True)
class RolloutForecast:
    """The expected effect of the restarts of a rollout."""

    #: Connections that agents open again.
    reconnect_count: int
    #: The instances of the kinds that restart, in their order.
    loads: tuple[InstanceLoadForecast, ...]


def forecast_rollout(
    instances: Sequence[RolloutInstance],
    restart_order: Sequence[str],
    concurrency: int,
    agent_count: int,
) -> RolloutForecast:
    """Return the effect of restarts, `concurrency` instances at a time. `restart_order`: ids.

    `agent_count`: agents of the fleet. An agent chooses at random among the instances that it can connect to.
    """
    by_id = {instance.id: instance for instance in instances}
    loads = {instance.id: float(instance.load) for instance in instances}
    reconnect_count = 0.0
    restarting_ids = [instance_id for instance_id in restart_order if instance_id in by_id]
    for start in range(0, len(restarting_ids), concurrency):
        group = restarting_ids[start : start + concurrency]
        for instance_id in group:
            reconnect_count += loads[instance_id]
            _move_load(by_id[instance_id], instances, group, agent_count, loads)
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


def _move_load(
    instance: RolloutInstance,
    instances: Sequence[RolloutInstance],
    group: Collection[str],
    agent_count: int,
    loads: dict[str, float],
) -> None:
    """Move the load of a restarting instance to its peers."""
    peers = [
        peer for peer in instances if peer.kind is instance.kind and peer.is_usable and peer.id not in group
    ]
    if instance.kind is InstanceKind.PROXY and agent_count:
        tunnels_per_agent = (
            sum(loads[peer.id] for peer in instances if peer.kind is instance.kind) / agent_count
        )
        if round(tunnels_per_agent) > len(peers):
            # Agent mesh: every agent has a tunnel to every proxy, and opens it again after the restart.
            return
    for peer in peers:
        loads[peer.id] += loads[instance.id] / len(peers)
    if peers:
        loads[instance.id] = 0.0
