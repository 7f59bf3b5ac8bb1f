from __future__ import annotations

from random import Random

import numpy as np

from fleet.nodes.simulation.fault_script import parse_fault
from fleet.nodes.simulation.fleet import InstanceModel, SimulatedFleet, SimulationShape

_START = 1_800_000_000.0
_SMALL = SimulationShape(agents=200, proxies=4, auths=2)


def _fleet(shape: SimulationShape = _SMALL, seed: int = 7) -> SimulatedFleet:
    return SimulatedFleet(shape, Random(seed), _START)


def _open(fleet: SimulatedFleet) -> int:
    return sum(len(proxy.tunnels) for proxy in fleet.proxies)


def _agents(proxy: InstanceModel) -> dict[int, float]:
    """Who has a tunnel there, and since when."""
    page = proxy.tunnels.since("", 0, 1_000_000)
    return {opened.agent: opened.at for opened in page.updates}


def _pass(fleet: SimulatedFleet, begin: float, seconds: float, step: float = 1.0) -> float:
    """Tick through `seconds`; return the moment reached."""
    now = _START + begin
    for moment in np.arange(now, now + seconds + step, step):
        fleet.tick(float(moment))
    return now + seconds


def test_fleet_new_has_every_tunnel_and_even_homes() -> None:
    """Every agent has its tunnels to different proxies, and blocks are even."""
    fleet = _fleet()
    assert _open(fleet) == 400
    assert all(len(set(places)) == 2 for places in fleet.places.tolist())
    assert np.bincount(fleet.places[:, 0]).tolist() == [50, 50, 50, 50]


def test_fleet_same_seed_same_faults_stay_equal_whenever_they_tick() -> None:
    """Processes of one simulation tick at different moments and must agree on who is stranded, and on places."""
    shape = SimulationShape(agents=200, proxies=4, reconnect_after=5.0)
    one, two = _fleet(shape), _fleet(shape)
    script = ("strand proxy-2 10", "kill proxy-1", "offline proxy-3 5", "heal all", "freeze proxy-4")
    for number, text in enumerate(script):
        _pass(one, 10 * number, 8, step=0.3)
        _pass(two, 10 * number, 7, step=1.7)
        for fleet in (one, two):
            fleet.apply(parse_fault(text), _START + 10 * number + 9)
    _pass(one, 50, 10, step=0.3)
    _pass(two, 50, 10, step=1.7)
    assert one.places.tolist() == two.places.tolist()
    assert one.epoch == two.epoch
    assert [_agents(p) for p in one.proxies] == [_agents(p) for p in two.proxies]


def test_heartbeats_at_ttl_600_come_in_time_and_spread() -> None:
    """Nothing expires, and about one agent in 330 renews each second."""
    fleet = _fleet(SimulationShape(agents=3300, proxies=4))
    before = fleet.revision
    now = _pass(fleet, 0, 660, step=2.0)
    assert (fleet.expires_at > now).all()
    assert all(instance.expires_at > now for instance in fleet.instances)
    assert 5800 < fleet.revision - before < 7400


def test_auth_killed_moves_every_agent() -> None:
    """A dead connection moves pick_first too."""
    fleet = _fleet()
    fleet.apply(parse_fault("kill auth-1"), _START)
    _pass(fleet, 0, 400, step=5.0)
    assert set(fleet.auth.tolist()) == {1}


def test_auth_cut_from_backend_moves_only_reconnect() -> None:
    """Agents with pick_first stay on the sick auth and expire; healed, they heartbeat again."""
    fleet = _fleet()
    fleet.apply(parse_fault("block-backend auth-1"), _START)
    now = _pass(fleet, 0, 700, step=5.0)
    held = fleet.auth == 0
    assert held.any()
    assert not fleet.reconnect_mask[held].any()
    assert (fleet.expires_at[held] <= now).all()
    assert fleet.auths[0].expires_at <= now
    fleet.apply(parse_fault("heal auth-1"), now)
    fleet.tick(now + 6)
    assert (fleet.expires_at > now).all()


def test_auths_all_cut_let_everybody_expire() -> None:
    """With no healthy auth nobody moves and nothing is written."""
    fleet = _fleet()
    fleet.apply(parse_fault("block-backend auth-*"), _START)
    now = _pass(fleet, 0, 700, step=5.0)
    assert (fleet.expires_at <= now).all()
    assert fleet.present(fleet.auths, now) == []


def test_strand_takes_all_tunnels_and_leaves_heartbeats() -> None:
    """Stranded agents go on heartbeating; offline ones do not; heal brings both back."""
    fleet = _fleet()
    fleet.apply(parse_fault("strand proxy-1 20"), _START)
    assert _open(fleet) == 360
    assert fleet.heartbeat_mask.all()
    fleet.apply(parse_fault("offline proxy-1 10"), _START)
    assert _open(fleet) == 340
    assert int((~fleet.heartbeat_mask).sum()) == 10
    fleet.apply(parse_fault("heal proxy-1"), _START)
    fleet.tick(_START + 3)
    assert _open(fleet) == 400
    assert fleet.heartbeat_mask.all()


def test_strand_more_than_there_are_takes_all_of_them() -> None:
    """A count is a wish."""
    fleet = _fleet(SimulationShape(agents=10, proxies=2, connections=1))
    fleet.apply(parse_fault("strand proxy-1 1000"), _START)
    assert _open(fleet) == 5


def test_proxy_killed_and_healed_begins_anew() -> None:
    """A new start has a new epoch, no memory, and its agents come back within seconds."""
    fleet = _fleet()
    proxy = fleet.proxies[0]
    agents, epoch = set(_agents(proxy)), proxy.tunnels.epoch
    fleet.apply(parse_fault("kill proxy-1"), _START)
    assert not _agents(proxy)
    fleet.apply(parse_fault("heal proxy-1"), _START + 10)
    fleet.tick(_START + 13)
    assert proxy.tunnels.epoch != epoch
    assert set(_agents(proxy)) == agents


def test_proxies_killed_together_and_healed_in_turn() -> None:
    """Each gets back its own agents when it is healed, also those who wait for the other too."""
    fleet = _fleet()
    before = [set(_agents(proxy)) for proxy in fleet.proxies]
    fleet.apply(parse_fault("kill proxy-[12]"), _START)
    fleet.apply(parse_fault("heal proxy-1"), _START + 10)
    _pass(fleet, 10, 3)
    assert [set(_agents(proxy)) for proxy in fleet.proxies] == [before[0], set(), before[2], before[3]]
    fleet.apply(parse_fault("heal all"), _START + 20)
    _pass(fleet, 20, 3)
    assert [set(_agents(proxy)) for proxy in fleet.proxies] == before


def test_proxy_killed_with_reconnect_after_spreads_its_agents() -> None:
    """When agents find another proxy, all tunnels are back after one and a half times that."""
    fleet = _fleet(SimulationShape(agents=200, proxies=4, reconnect_after=10.0))
    fleet.apply(parse_fault("kill proxy-1"), _START)
    _pass(fleet, 0, 16)
    assert _open(fleet) == 400
    assert not (fleet.places == 0).any()


def test_proxy_frozen_and_thawed_keeps_its_tunnels() -> None:
    """SIGSTOP loses nothing."""
    fleet = _fleet()
    before = _agents(fleet.proxies[0])
    fleet.apply(parse_fault("freeze proxy-1"), _START)
    fleet.apply(parse_fault("resume proxy-1"), _START + 5)
    assert _agents(fleet.proxies[0]) == before
    assert not fleet.proxies[0].is_frozen


def test_churn_closes_and_opens_again() -> None:
    """Revisions move on; after the last second everything is open again."""
    fleet = _fleet(SimulationShape(agents=200, proxies=4, churn=0.1))
    before = sum(proxy.tunnels.revision for proxy in fleet.proxies)
    _pass(fleet, 0, 10, step=0.25)
    assert sum(proxy.tunnels.revision for proxy in fleet.proxies) - before > 100
    assert 340 < _open(fleet) < 400


def test_agents_since_pages_reach_everybody_once() -> None:
    """Pages in order of revision miss nobody and repeat nobody."""
    fleet = _fleet()
    seen: list[int] = []
    revision, more = 0, True
    while more:
        agents, more = fleet.agents_since(revision, _START, 30)
        seen += agents.tolist()
        revision = int(fleet.revisions[agents[-1]])
    assert sorted(seen) == list(range(200))
