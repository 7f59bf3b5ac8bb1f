"""Places of agents: the auth and the proxies that a round found them at. docs/reference/record.md."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleet.monitoring.classify.frame import FleetFrame
from fleet.monitoring.columns import NO_INSTANCE, PLACE, PLACE_PROXY_COUNT, ResourcePresence

_MAX_TUNNEL_COUNT = 0xFF


def places_of(
    memory: npt.NDArray[np.void],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
    presences: npt.NDArray[np.uint8] | None = None,
) -> npt.NDArray[np.void]:
    """Return PLACE rows from the memory of a round and the reported tunnels, each at most once.

    `presences`: ResourcePresence of each agent's resource.
    """
    places: npt.NDArray[np.void] = np.zeros(len(memory), PLACE)
    places["auth"] = memory["last_auth"]
    if presences is not None:
        places["presence"] = presences
    places["proxy"] = memory["last_proxies"][:, 0]
    # Indices of the platform's size, once: numpy converts all others at each use.
    agents, agent_proxies = tunnel_agents.astype(np.intp), tunnel_proxies
    places["tunnel_count"] = np.minimum(np.bincount(agents, minlength=len(memory)), _MAX_TUNNEL_COUNT)
    slots = np.full((PLACE_PROXY_COUNT, len(memory)), NO_INSTANCE, np.uint16)
    # Without sorting all tunnels, which would take longer than all rules: of several rows of one agent the last one
    # wins, and the others are tried for the next slot.
    for slot in slots:
        slot[agents] = agent_proxies
        rows_left = np.flatnonzero(slot[agents] != agent_proxies)
        if not len(rows_left):
            break
        agents, agent_proxies = agents[rows_left], agent_proxies[rows_left]
    _sort_slots(slots)
    for number, slot in enumerate(slots):
        places["proxies"][:, number] = slot
    return places


def _sort_slots(slots: npt.NDArray[np.uint16]) -> None:
    """Sort the slots of each agent in place, by exchanging neighbours: `np.sort` of as many short rows is slow."""
    for step in range(len(slots)):
        for number in range(step % 2, len(slots) - 1, 2):
            low, high = slots[number], slots[number + 1]
            lower = np.minimum(low, high)
            np.maximum(low, high, out=high)
            low[:] = lower


def presences_of(heartbeats: npt.NDArray[np.void], frame: FleetFrame) -> npt.NDArray[np.uint8]:
    """Return the ResourcePresence of each agent's resource in a round."""
    expires_at = heartbeats["expires_at"]
    presences = np.full(len(heartbeats), ResourcePresence.UNEXPIRED, np.uint8)
    is_over = expires_at <= frame.unexpired_from
    presences[is_over] = np.where(
        expires_at[is_over] <= frame.expired_until, ResourcePresence.EXPIRED, ResourcePresence.UNCLEAR
    )
    return presences
