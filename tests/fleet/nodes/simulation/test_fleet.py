from __future__ import annotations

from random import Random

import numpy as np

from fleet.nodes.simulation.fault_script import parse_fault
from fleet.nodes.simulation.fleet import InstanceModel, SimulatedFleet, SimulationShape

_START = 1_800_000_000.0
_SMALL_SHAPE = SimulationShape(agents=200, proxies=4, auths=2)


def _make_fleet(shape: SimulationShape = _SMALL_SHAPE, seed: int = 7) -> SimulatedFleet:
    return SimulatedFleet(shape, Random(seed), _START)


def _count_tunnels(fleet: SimulatedFleet) -> int:
    return sum(len(proxy.tunnels) for proxy in fleet.proxies)


def _tunnel_starts(proxy: InstanceModel) -> dict[int, float]:
    """Return the agents with a tunnel to the proxy, with the time of its start."""
    page = proxy.tunnels.since("", 0, 1_000_000)
    return {tunnel.agent: tunnel.opened_at for tunnel in page.updates}


def _run(fleet: SimulatedFleet, start: float, seconds: float, step: float = 1.0) -> float:
    """Tick through `seconds`, and return the time at the end."""
    now = _START + start
    for moment in np.arange(now, now + seconds + step, step):
        fleet.tick(float(moment))
    return now + seconds


def test_new_fleet_has_all_tunnels_and_even_homes() -> None:
    """Every agent has tunnels to different proxies, and the home proxies have equal shares."""
    fleet = _make_fleet()
    assert _count_tunnels(fleet) == 400
    assert all(len(set(places)) == 2 for places in fleet.proxies_by_agent.tolist())
    assert np.bincount(fleet.proxies_by_agent[:, 0]).tolist() == [50, 50, 50, 50]


def test_fleets_with_equal_seed_and_faults_stay_equal() -> None:
    """Processes of one simulation tick at different moments and must agree on stranded agents and places."""
    shape = SimulationShape(agents=200, proxies=4, reconnect_after=5.0)
    first, second = _make_fleet(shape), _make_fleet(shape)
    script = ("strand proxy-2 10", "kill proxy-1", "offline proxy-3 5", "heal all", "freeze proxy-4")
    for number, text in enumerate(script):
        _run(first, 10 * number, 8, step=0.3)
        _run(second, 10 * number, 7, step=1.7)
        for fleet in (first, second):
            fleet.apply_fault(parse_fault(text), _START + 10 * number + 9)
    _run(first, 50, 10, step=0.3)
    _run(second, 50, 10, step=1.7)
    assert first.proxies_by_agent.tolist() == second.proxies_by_agent.tolist()
    assert first.epoch == second.epoch
    assert [_tunnel_starts(p) for p in first.proxies] == [_tunnel_starts(p) for p in second.proxies]


def test_heartbeats_are_in_time_and_distributed() -> None:
    """Nothing expires with a TTL of 600 s, and about one agent in 330 sends a heartbeat each second."""
    fleet = _make_fleet(SimulationShape(agents=3300, proxies=4))
    start_revision = fleet.revision
    now = _run(fleet, 0, 660, step=2.0)
    assert (fleet.expires_at > now).all()
    assert all(instance.expires_at > now for instance in fleet.instances)
    assert 5800 < fleet.revision - start_revision < 7400


def test_killed_auth_loses_all_agents() -> None:
    """A dead connection moves pick_first agents as well."""
    fleet = _make_fleet()
    fleet.apply_fault(parse_fault("kill auth-1"), _START)
    _run(fleet, 0, 400, step=5.0)
    assert set(fleet.auth_by_agent.tolist()) == {1}


def test_auth_without_backend_loses_reconnect_agents_only() -> None:
    """Agents with pick_first stay and expire; after the fault they send heartbeats again."""
    fleet = _make_fleet()
    fleet.apply_fault(parse_fault("block-backend auth-1"), _START)
    now = _run(fleet, 0, 700, step=5.0)
    stay_mask = fleet.auth_by_agent == 0
    assert stay_mask.any()
    assert not fleet.reconnect_mask[stay_mask].any()
    assert (fleet.expires_at[stay_mask] <= now).all()
    assert fleet.auths[0].expires_at <= now
    fleet.apply_fault(parse_fault("heal auth-1"), now)
    fleet.tick(now + 6)
    assert (fleet.expires_at > now).all()


def test_all_agents_expire_if_all_auths_lose_the_backend() -> None:
    """Without a healthy auth no agent moves and no heartbeat is written."""
    fleet = _make_fleet()
    fleet.apply_fault(parse_fault("block-backend auth-*"), _START)
    now = _run(fleet, 0, 700, step=5.0)
    assert (fleet.expires_at <= now).all()
    assert fleet.filter_present(fleet.auths, now) == []


def test_stranded_agents_send_heartbeats_and_offline_agents_do_not() -> None:
    """Both lose their tunnels, and heal restores both."""
    fleet = _make_fleet()
    fleet.apply_fault(parse_fault("strand proxy-1 20"), _START)
    assert _count_tunnels(fleet) == 360
    assert fleet.heartbeat_mask.all()
    fleet.apply_fault(parse_fault("offline proxy-1 10"), _START)
    assert _count_tunnels(fleet) == 340
    assert int((~fleet.heartbeat_mask).sum()) == 10
    fleet.apply_fault(parse_fault("heal proxy-1"), _START)
    fleet.tick(_START + 3)
    assert _count_tunnels(fleet) == 400
    assert fleet.heartbeat_mask.all()


def test_strand_count_above_the_agents_strands_all() -> None:
    """The count is a maximum."""
    fleet = _make_fleet(SimulationShape(agents=10, proxies=2, connections=1))
    fleet.apply_fault(parse_fault("strand proxy-1 1000"), _START)
    assert _count_tunnels(fleet) == 5


def test_healed_proxy_has_a_new_epoch_and_its_agents() -> None:
    """The agents of a killed proxy return within seconds after it is healed."""
    fleet = _make_fleet()
    proxy = fleet.proxies[0]
    agents, epoch = set(_tunnel_starts(proxy)), proxy.tunnels.epoch
    fleet.apply_fault(parse_fault("kill proxy-1"), _START)
    assert not _tunnel_starts(proxy)
    fleet.apply_fault(parse_fault("heal proxy-1"), _START + 10)
    fleet.tick(_START + 13)
    assert proxy.tunnels.epoch != epoch
    assert set(_tunnel_starts(proxy)) == agents


def test_each_healed_proxy_gets_back_its_agents() -> None:
    """The agents include those that wait for another killed proxy as well."""
    fleet = _make_fleet()
    agents_before = [set(_tunnel_starts(proxy)) for proxy in fleet.proxies]
    fleet.apply_fault(parse_fault("kill proxy-[12]"), _START)
    fleet.apply_fault(parse_fault("heal proxy-1"), _START + 10)
    _run(fleet, 10, 3)
    assert [set(_tunnel_starts(proxy)) for proxy in fleet.proxies] == [
        agents_before[0],
        set(),
        agents_before[2],
        agents_before[3],
    ]
    fleet.apply_fault(parse_fault("heal all"), _START + 20)
    _run(fleet, 20, 3)
    assert [set(_tunnel_starts(proxy)) for proxy in fleet.proxies] == agents_before


def test_agents_of_killed_proxy_reconnect_elsewhere() -> None:
    """With `reconnect_after` all tunnels are back after one and a half times that."""
    fleet = _make_fleet(SimulationShape(agents=200, proxies=4, reconnect_after=10.0))
    fleet.apply_fault(parse_fault("kill proxy-1"), _START)
    _run(fleet, 0, 16)
    assert _count_tunnels(fleet) == 400
    assert not (fleet.proxies_by_agent == 0).any()


def test_resumed_proxy_keeps_its_tunnels() -> None:
    """A frozen proxy loses no tunnels."""
    fleet = _make_fleet()
    starts_before = _tunnel_starts(fleet.proxies[0])
    fleet.apply_fault(parse_fault("freeze proxy-1"), _START)
    fleet.apply_fault(parse_fault("resume proxy-1"), _START + 5)
    assert _tunnel_starts(fleet.proxies[0]) == starts_before
    assert not fleet.proxies[0].is_frozen


def test_churn_closes_and_reopens_tunnels() -> None:
    """The revisions grow, and most tunnels are open at any time."""
    fleet = _make_fleet(SimulationShape(agents=200, proxies=4, churn=0.1))
    revision_before = sum(proxy.tunnels.revision for proxy in fleet.proxies)
    _run(fleet, 0, 10, step=0.25)
    assert sum(proxy.tunnels.revision for proxy in fleet.proxies) - revision_before > 100
    assert 340 < _count_tunnels(fleet) < 400


def test_pages_of_agents_contain_each_agent_once() -> None:
    """The pages are sorted by revision."""
    fleet = _make_fleet()
    agent_numbers: list[int] = []
    revision, more = 0, True
    while more:
        agents, more = fleet.list_agents_since(revision, _START, 30)
        agent_numbers += agents.tolist()
        revision = int(fleet.revisions[agents[-1]])
    assert sorted(agent_numbers) == list(range(200))
