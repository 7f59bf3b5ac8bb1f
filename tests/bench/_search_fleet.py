"""A large fleet to search: versions, labels, and some agents that are not healthy."""

from __future__ import annotations

import asyncio
import random

from fleet.monitoring.agent_attributes import AgentAttributes
from fleet.vocabulary.verdicts import State
from tests.fakes.live_fleet import AUTHS, LiveFleet
from tests.flow.web import Console

_SEED = 7
_VERSIONS = ("18.1.0", "18.1.1", "18.2.0", "17.9.3")
_REGIONS = ("eu-west-1", "eu-central-1", "us-east-1", "ap-south-1")
#: One agent in so many is stranded or at risk.
_AFFECTED_EVERY = 50


async def write_fleet(console: Console, agents: int, proxies: int) -> None:
    """Write a record of the cluster *large* and its first round."""
    await asyncio.to_thread(console.add_cluster, "large")
    fleet = LiveFleet(
        console.writer(), console.layer(), "large", proxies=proxies, agents_per_proxy=agents // proxies
    )
    rng = random.Random(_SEED)
    rng.shuffle(fleet.homes)
    fleet.auths = [rng.randrange(AUTHS) for _ in fleet.homes]
    choices = [
        AgentAttributes(version, (("region", region), ("rack", str(rack))))
        for version in _VERSIONS
        for region in _REGIONS
        for rack in range(20)
    ]
    fleet.attributes_by_agent = {index: rng.choice(choices) for index in range(len(fleet.homes))}
    affected_agents = range(0, len(fleet.homes), _AFFECTED_EVERY)
    await fleet.begin({index: rng.choice((State.STRANDED, State.AT_RISK)) for index in affected_agents})
