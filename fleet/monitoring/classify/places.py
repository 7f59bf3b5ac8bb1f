"""Places of agents: the auth and the proxies that a round found them at. docs/reference/record.md."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import NO_INSTANCE, PLACE_PROXY_COUNT, blank_places

_MAX_TUNNEL_COUNT = 0xFF


def places_of(
    memory: npt.NDArray[np.void],
    tunnel_agents: npt.NDArray[np.uint32],
    tunnel_proxies: npt.NDArray[np.uint16],
) -> npt.NDArray[np.void]:
    """Return PLACE rows from the memory of a round and the reported tunnels, each at most once."""
    places = blank_places(len(memory))
    places["auth"] = memory["last_auth"]
    places["proxy"] = memory["last_proxies"][:, 0]
    places["tunnel_count"] = np.minimum(np.bincount(tunnel_agents, minlength=len(memory)), _MAX_TUNNEL_COUNT)
    proxies = np.full((PLACE_PROXY_COUNT, len(memory)), NO_INSTANCE, np.uint16)
    # Without sorting all tunnels, which would take longer than all rules: of several rows of one agent the last one
    # wins, and the others are tried for the next slot.
    agents, agent_proxies = tunnel_agents, tunnel_proxies
    for slot in proxies:
        slot[agents] = agent_proxies
        is_left = slot[agents] != agent_proxies
        if not is_left.any():
            break
        agents, agent_proxies = agents[is_left], agent_proxies[is_left]
    places["proxies"] = np.sort(proxies, axis=0).T
    return places
