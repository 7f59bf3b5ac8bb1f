"""From a sick auth to answers of a healthy one, from a silent proxy to tunnels elsewhere, and what users lose by it.

For the first, one agent against a bare client, and 1,000 at once; auths, balancer and agents are processes of their
own. docs/reference/benchmarks.md says what the figures are.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass

from fleet.protocol.recovery import announce, tracker
from tests.bench import _recovery_failover as failover
from tests.bench import _recovery_tunnels as tunnels
from tests.bench import _recovery_users as users
from tests.bench._recovery_failover import Herd
from tests.bench.measure import Figure, Outcome, Target, percentile

_TARGETS = (
    Target("failover_p95_to_bare", at_most=2.0),
    Target("herd_p50_s", at_most=0.5),
    Target("herd_slowest_s", at_most=7.0),
    Target("herd_connects", at_most=2.0),
    Target("herd_lost", at_most=0),
    Target("tunnels_p95_s", at_most=2 * tunnels.TTL + 1),
)


_CORES = os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _Size:
    rounds: int
    agents: int
    processes: int
    proxy_rounds: int


_WHOLE = _Size(rounds=60, agents=1_000, processes=2, proxy_rounds=10)
_QUICK = _Size(rounds=5, agents=60, processes=2, proxy_rounds=2)
#: Upstream without lower TTLs: the announce TTL, then the tracker's DefaultProxyExpiry.
_DEFAULT_S = announce.DEFAULT_TTL + tracker.DEFAULT_PROXY_EXPIRY


def run(*, quick: bool) -> Outcome:
    """One after the other: each part has the machine to itself."""
    outcome = asyncio.run(_measure(_QUICK if quick else _WHOLE))
    seen = users.measure(users.QUICK if quick else users.WHOLE)
    return Outcome({**outcome.figures, **seen}, (*outcome.targets, *users.TARGETS), outcome.peers)


async def _measure(size: _Size) -> Outcome:
    figures: dict[str, Figure] = {}
    peers: dict[str, Figure] = {}
    await _one_by_one(size, figures, peers)
    few = size.agents // 10
    _say(f"{few} agents at once")
    figures |= _of_herd("few", await failover.herd(few, size.processes, "0.25"), few)
    _say(f"{size.agents} agents at once")
    herd = await failover.herd(size.agents, size.processes, "0.25")
    figures |= _of_herd("herd", herd, size.agents)
    for found, more in zip((figures, peers), await _floor(size, herd), strict=True):
        found.update(more)
    _say(f"{size.agents} agents at once, with upstream's waits")
    peers |= _of_herd(
        "upstream_herd", await failover.herd(size.agents, size.processes, "upstream"), size.agents
    )
    await _tunnels(size, figures, peers)
    return Outcome(figures, _TARGETS, peers)


async def _floor(size: _Size, ours: Herd) -> tuple[dict[str, Figure], dict[str, Figure]]:
    """As many clients of gRPC alone: with one RPC each, and with all the RPCs of ours in their order."""
    figures: dict[str, Figure] = {}
    peers: dict[str, Figure] = {}
    for kind in ("bare", "floor"):
        _say(f"{size.agents} {kind} clients at once")
        seen = await failover.herd(size.agents, size.processes, kind)
        name = f"{kind}_herd"
        peers |= _of_herd(name, seen, size.agents)
        del peers[f"{name}_connects"]  # not all ask for a policy, and that is what is counted
        # If half of the work came first and nothing else ran, half of them were done by then.
        peers[f"{name}_p50_by_cpu_s"] = sum(seen.cpu.values()) / _CORES / 2
        if ours.seconds and seen.seconds:
            figures[f"herd_p50_to_{kind}"] = percentile(ours.seconds, 0.5) / percentile(seen.seconds, 0.5)
    return figures, peers


async def _tunnels(size: _Size, figures: dict[str, Figure], peers: dict[str, Figure]) -> None:
    """Agents' tunnels, when their proxy stops heartbeating."""
    _say("a proxy stops heartbeating")
    seen = await tunnels.seconds_to_tunnels_elsewhere(size.proxy_rounds, agents=30)
    figures["tunnels_measured"] = len(seen)
    if not seen:
        return
    figures |= {f"tunnels_p{share}_s": percentile(seen, share / 100) for share in (50, 95)}
    figures["tunnels_p95_in_ttls"] = percentile(seen, 0.95) / tunnels.TTL
    # 10 minutes of announce TTL, and 3 of the tracker; the same shares of our TTL.
    peers["default_tunnels_s"] = _DEFAULT_S
    peers["default_tunnels_in_ttls"] = _DEFAULT_S / announce.DEFAULT_TTL
    peers["default_tunnels_scaled_s"] = _DEFAULT_S / announce.DEFAULT_TTL * tunnels.TTL


async def _one_by_one(size: _Size, figures: dict[str, Figure], peers: dict[str, Figure]) -> None:
    """The balanced channel and the bare client in turns."""
    ours: list[float] = []
    bare: list[float] = []
    async with failover.ground(2, check_every=0.05) as there:
        for number in range(size.rounds):
            if number % 10 == 0:
                _say(f"failover {number + 1} of {size.rounds}")
            ours.append(await failover.pick_healthy_once(there) * 1000)
            bare.append(await failover.bare_once(there) * 1000)
    figures["rounds"] = size.rounds
    for share in (0.5, 0.95):
        name = f"p{share * 100:.0f}"
        figures[f"failover_{name}_ms"] = percentile(ours, share)
        peers[f"bare_{name}_ms"] = percentile(bare, share)
        figures[f"failover_{name}_to_bare"] = percentile(ours, share) / percentile(bare, share)


def _of_herd(name: str, seen: Herd, agents: int) -> dict[str, Figure]:
    found: dict[str, Figure] = {f"{name}_agents": agents, f"{name}_lost": seen.lost}
    if seen.seconds:
        found |= {f"{name}_p{share}_s": percentile(seen.seconds, share / 100) for share in (50, 95)}
        found[f"{name}_slowest_s"] = max(seen.seconds)
    # All parts share the machine: this is what their work alone takes on its cores, whoever waits for what.
    busy = sum(seen.cpu.values()) / _CORES
    found |= {f"{name}_connects": seen.connects, f"{name}_cpu_by_cores_s": busy}
    return found | {f"{name}_cpu_ms_of_{part}": cpu / agents * 1000 for part, cpu in seen.cpu.items()}


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
