"""From an unhealthy auth to a healthy one, from a silent proxy to tunnels elsewhere, and what users lose by it.

For the first, one channel against a bare client, and 1,000 real agents at once; auths, balancer and agents are
processes of their own. docs/reference/benchmarks.md says what the figures are.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.protocol.recovery import announce, tracker
from tests.bench import _recovery_failover as failover
from tests.bench import _recovery_tunnels as tunnels
from tests.bench import _recovery_users as users
from tests.bench._recovery_herd import AGENT_WAITS, Herd, measure_herd
from tests.bench.measure import BenchError, Figure, Outcome, Target, percentile

_TARGETS = (
    Target("failover_p95_to_bare", at_most=2.0),
    # A half of the agents beside gRPC alone with all of their calls, whatever the machine.
    Target("herd_p50_to_floor", at_most=1.1),
    Target("herd_slowest_s", at_most=7.0),
    Target("herd_dials", at_most=2.0),
    Target("herd_lost", at_most=0),
    Target("tunnels_p95_s", at_most=2 * tunnels.TTL + 1),
)


_CORES = os.cpu_count() or 1
#: Of one failover with its preparation, seconds.
_FAILOVER_TIMEOUT = 120.0


@dataclass(frozen=True, slots=True)
class _Size:
    rounds: int
    agents: int
    processes: int
    #: How often the herd and the clients that it is compared with move, in turns.
    turns: int
    proxy_rounds: int
    #: Kinds of herds beside the two that are compared.
    other_kinds: tuple[str, ...] = ()


_WHOLE = _Size(60, 1_000, 2, turns=3, proxy_rounds=10, other_kinds=("few", "bare", "upstream"))
_QUICK = _Size(2, 10, 1, turns=1, proxy_rounds=1)
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
    await _compare_herds(size, figures, peers)
    for kind in size.other_kinds:
        agents = size.agents // 10 if kind == "few" else size.agents
        _report(f"{agents} agents at once: {kind}")
        herd = await measure_herd(agents, size.processes, "agents" if kind == "few" else kind)
        into, name = (figures, kind) if kind == "few" else (peers, f"{kind}_herd")
        into |= _herd_figures(name, [herd], agents)
        if kind not in {*AGENT_WAITS, "few"}:
            del into[f"{name}_connects"]  # not all ask for a policy, and that is what is counted
    await _measure_tunnels(size, figures, peers)
    return Outcome(figures, _TARGETS, peers)


async def _compare_herds(size: _Size, figures: dict[str, Figure], peers: dict[str, Figure]) -> None:
    """Measure real agents, and as many plain gRPC clients with all of their calls in the same order, in turns."""
    agent_herds, floor_herds = [], []
    for turn in range(size.turns):
        _report(f"{size.agents} agents at once, and as many plain clients: turn {turn + 1} of {size.turns}")
        agent_herds.append(await measure_herd(size.agents, size.processes, "agents"))
        floor_herds.append(await measure_herd(size.agents, size.processes, "floor"))
    figures |= _herd_figures("herd", agent_herds, size.agents)
    peers |= _herd_figures("floor_herd", floor_herds, size.agents)
    # If half of the work came first and nothing else ran, half of them were done by then.
    peers["floor_herd_p50_by_cpu_s"] = float(peers["floor_herd_cpu_by_cores_s"]) / 2
    # Of each turn by itself: a machine that is slow is slow for both.
    ratios = [
        percentile(herd.seconds, 0.5) / percentile(floor_herd.seconds, 0.5)
        for herd, floor_herd in zip(agent_herds, floor_herds, strict=True)
        if herd.seconds and floor_herd.seconds
    ]
    if ratios:
        figures["herd_p50_to_floor"] = statistics.median(ratios)


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
            for times, measure in ((balanced, failover.measure_pick_healthy), (bare, failover.measure_bare)):
                try:
                    times.append(await asyncio.wait_for(measure(setup), _FAILOVER_TIMEOUT) * 1000)
                except TimeoutError as error:
                    raise BenchError(f"no failover within {_FAILOVER_TIMEOUT:g} s") from error
    figures["rounds"] = size.rounds
    for share in (0.5, 0.95):
        name = f"p{share * 100:.0f}"
        figures[f"failover_{name}_ms"] = percentile(balanced, share)
        peers[f"bare_{name}_ms"] = percentile(bare, share)
        figures[f"failover_{name}_to_bare"] = percentile(balanced, share) / percentile(bare, share)


def _herd_figures(name: str, herds: Sequence[Herd], agents: int) -> dict[str, Figure]:
    """Return medians of the turns; of lost agents and of the slowest the worst turn."""
    figures: dict[str, Figure] = {
        f"{name}_agents": agents,
        f"{name}_lost": max(herd.lost_agents for herd in herds),
    }
    arrived = [herd for herd in herds if herd.seconds]
    if arrived:
        for share in (50, 95):
            figures[f"{name}_p{share}_s"] = statistics.median(
                percentile(herd.seconds, share / 100) for herd in arrived
            )
        figures[f"{name}_slowest_s"] = max(max(herd.seconds) for herd in arrived)
    figures[f"{name}_connects"] = statistics.median(herd.connects for herd in herds)
    figures[f"{name}_dials"] = statistics.median(herd.dials for herd in herds)
    # All parts share the machine: this is what their work alone takes on its cores, whoever waits for what.
    busy = statistics.median(sum(herd.cpu.values()) for herd in herds)
    figures[f"{name}_cpu_by_cores_s"] = busy / _CORES
    for part in herds[0].cpu:
        cpu = statistics.median(herd.cpu[part] for herd in herds)
        figures[f"{name}_cpu_ms_of_{part}"] = cpu / agents * 1000
    return figures


def _report(progress: str) -> None:
    print(progress, file=sys.stderr, flush=True)
