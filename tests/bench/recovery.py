"""From an unhealthy auth to a healthy one, from a silent proxy to tunnels elsewhere, and what users lose by it.

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
    """Run one part after another: each has the machine to itself."""
    outcome = asyncio.run(_measure(_QUICK if quick else _WHOLE))
    user_figures = users.measure(users.QUICK if quick else users.WHOLE)
    return Outcome({**outcome.figures, **user_figures}, (*outcome.targets, *users.TARGETS), outcome.peers)


async def _measure(size: _Size) -> Outcome:
    figures: dict[str, Figure] = {}
    peers: dict[str, Figure] = {}
    await _compare_one_by_one(size, figures, peers)
    few = size.agents // 10
    _report(f"{few} agents at once")
    figures |= _herd_figures("few", await failover.measure_herd(few, size.processes, "0.25"), few)
    _report(f"{size.agents} agents at once")
    herd = await failover.measure_herd(size.agents, size.processes, "0.25")
    figures |= _herd_figures("herd", herd, size.agents)
    for target_figures, more in zip((figures, peers), await _measure_floor(size, herd), strict=True):
        target_figures.update(more)
    _report(f"{size.agents} agents at once, with upstream's waits")
    peers |= _herd_figures(
        "upstream_herd", await failover.measure_herd(size.agents, size.processes, "upstream"), size.agents
    )
    await _measure_tunnels(size, figures, peers)
    return Outcome(figures, _TARGETS, peers)


async def _measure_floor(size: _Size, herd: Herd) -> tuple[dict[str, Figure], dict[str, Figure]]:
    """Measure as many plain gRPC clients: with one RPC each, and with all our RPCs in the same order."""
    figures: dict[str, Figure] = {}
    peers: dict[str, Figure] = {}
    for kind in ("bare", "floor"):
        _report(f"{size.agents} {kind} clients at once")
        floor_herd = await failover.measure_herd(size.agents, size.processes, kind)
        name = f"{kind}_herd"
        peers |= _herd_figures(name, floor_herd, size.agents)
        del peers[f"{name}_connects"]  # not all ask for a policy, and that is what is counted
        # If half of the work came first and nothing else ran, half of them were done by then.
        peers[f"{name}_p50_by_cpu_s"] = sum(floor_herd.cpu.values()) / _CORES / 2
        if herd.seconds and floor_herd.seconds:
            figures[f"herd_p50_to_{kind}"] = percentile(herd.seconds, 0.5) / percentile(
                floor_herd.seconds, 0.5
            )
    return figures, peers


async def _measure_tunnels(size: _Size, figures: dict[str, Figure], peers: dict[str, Figure]) -> None:
    """Measure how long agents take to get tunnels elsewhere when their proxy stops heartbeating."""
    _report("a proxy stops heartbeating")
    seconds = await tunnels.seconds_to_tunnels_elsewhere(size.proxy_rounds, agents=30)
    figures["tunnels_measured"] = len(seconds)
    if not seconds:
        return
    figures |= {f"tunnels_p{share}_s": percentile(seconds, share / 100) for share in (50, 95)}
    figures["tunnels_p95_in_ttls"] = percentile(seconds, 0.95) / tunnels.TTL
    # 10 minutes of announce TTL, and 3 of the tracker; the same shares of our TTL.
    peers["default_tunnels_s"] = _DEFAULT_S
    peers["default_tunnels_in_ttls"] = _DEFAULT_S / announce.DEFAULT_TTL
    peers["default_tunnels_scaled_s"] = _DEFAULT_S / announce.DEFAULT_TTL * tunnels.TTL


async def _compare_one_by_one(size: _Size, figures: dict[str, Figure], peers: dict[str, Figure]) -> None:
    """Measure the balanced channel and the bare client in turns."""
    balanced: list[float] = []
    bare: list[float] = []
    async with failover.run_auths(2, check_every=0.05) as setup:
        for number in range(size.rounds):
            if number % 10 == 0:
                _report(f"failover {number + 1} of {size.rounds}")
            balanced.append(await failover.measure_pick_healthy(setup) * 1000)
            bare.append(await failover.measure_bare(setup) * 1000)
    figures["rounds"] = size.rounds
    for share in (0.5, 0.95):
        name = f"p{share * 100:.0f}"
        figures[f"failover_{name}_ms"] = percentile(balanced, share)
        peers[f"bare_{name}_ms"] = percentile(bare, share)
        figures[f"failover_{name}_to_bare"] = percentile(balanced, share) / percentile(bare, share)


def _herd_figures(name: str, herd: Herd, agents: int) -> dict[str, Figure]:
    figures: dict[str, Figure] = {f"{name}_agents": agents, f"{name}_lost": herd.lost_agents}
    if herd.seconds:
        figures |= {f"{name}_p{share}_s": percentile(herd.seconds, share / 100) for share in (50, 95)}
        figures[f"{name}_slowest_s"] = max(herd.seconds)
    # All parts share the machine: this is what their work alone takes on its cores, whoever waits for what.
    busy = sum(herd.cpu.values()) / _CORES
    figures |= {f"{name}_connects": herd.connects, f"{name}_cpu_by_cores_s": busy}
    return figures | {f"{name}_cpu_ms_of_{part}": cpu / agents * 1000 for part, cpu in herd.cpu.items()}


def _report(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)
