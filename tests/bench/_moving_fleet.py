"""A simulated fleet for campaigns: agents choose at random among proxies or auths, and need seconds to move."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from typing_extensions import override

from tests.fakes.campaign_fleet import CampaignFleet

#: Shortest and longest time from the advisory until the new connection is open, seconds.
MOVE_SECONDS = (0.3, 3.0)


@dataclass
class MovingFleet(CampaignFleet):
    """Agents that follow an advisory after a while. `now`: seconds since the epoch, moved on by the bench."""

    now: float = 0.0
    #: Tunnels that were closed.
    closed_count: int = 0
    random: random.Random = field(default_factory=lambda: random.Random(17))
    _moves: list[tuple[float, str, int]] = field(default_factory=list)
    _auth_moves: list[tuple[float, str]] = field(default_factory=list)

    @override
    def move(self) -> None:
        """Start the moves of the agents that got an advisory, and end those whose time has come."""
        self._moves += [(self._pick_end(), agent, proxy) for agent, proxy in self.pending_moves]
        self._auth_moves += [(self._pick_end(), agent) for agent, _ in self.pending_auth_moves]
        self.pending_moves.clear()
        self.pending_auth_moves.clear()
        for _, agent, proxy in [move for move in self._moves if move[0] <= self.now]:
            free_proxies = [n for n in range(self.proxies) if n not in self.agents[agent]]
            self.agents[agent].add(self.random.choice(free_proxies))
            self.agents[agent].discard(proxy)
            self.closed_count += 1
        for _, agent in [move for move in self._auth_moves if move[0] <= self.now]:
            other_auths = [n for n in range(self.auths) if n != self.auth_of[agent]]
            self.auth_of[agent] = self.random.choice(other_auths)
        self._moves = [move for move in self._moves if move[0] > self.now]
        self._auth_moves = [move for move in self._auth_moves if move[0] > self.now]

    def _pick_end(self) -> float:
        return self.now + self.random.uniform(*MOVE_SECONDS)
