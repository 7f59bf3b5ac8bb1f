"""How evenly agents are spread over auths and proxies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.shared.instance_loads import InstanceLoad, instance_loads_of, spread_query_of
from fleet.monitoring.views import InstanceView
from fleet.protocol.destination.health import DrainRequest
from fleet.vocabulary.instances import InstanceKind, InstanceState
from tests.fakes.reader import FakeReader

NOW = 1_700_000_000.0


def proxies_with(*counts: int) -> list[InstanceView]:
    """Return proxies with these numbers of tunnels, and one auth."""
    auth, _, proxy, _ = FakeReader(as_of=NOW).instances("default", NOW)
    return [
        replace(auth, facts=replace(auth.facts, index=0), agent_count=sum(counts)),
        *(
            replace(proxy, facts=replace(proxy.facts, index=index, id=f"p{index}"), agent_count=count)
            for index, count in enumerate(counts, 1)
        ),
    ]


@pytest.mark.parametrize(
    ("counts", "imbalances"),
    [
        ((20, 20, 20), ["", "", ""]),
        ((30, 20, 10), ["50 % more than the average proxy", "", "50 % fewer than the average proxy"]),
        ((24, 20, 16), ["", "", ""]),  # 20 % may be chance
        ((3, 2, 1), ["", "", ""]),  # too few to tell
        ((20,), [""]),
    ],
)
def test_a_large_difference_to_the_mean_is_named(counts: tuple[int, ...], imbalances: list[str]) -> None:
    """Of proxies among proxies; the only auth has no peers."""
    loads = instance_loads_of(proxies_with(*counts))
    assert [loads[index].imbalance_text for index in range(1, len(counts) + 1)] == imbalances
    assert loads[0] == InstanceLoad(InstanceKind.AUTH, sum(counts), 100)


def test_a_failing_or_draining_proxy_is_no_peer() -> None:
    """It loses its agents anyway: neither it nor its neighbours are out of balance."""
    auth, silent_proxy, draining_proxy, *ok_proxies = proxies_with(0, 2, 20, 20)
    views = [
        auth,
        replace(silent_proxy, state=InstanceState.SILENT),
        replace(draining_proxy, drain_request=DrainRequest("", NOW)),
        *ok_proxies,
    ]
    loads = instance_loads_of(views)
    assert {load.imbalance for load in loads.values()} == {None}
    assert [loads[index].percent_of_largest for index in range(1, 5)] == [0, 10, 100, 100]


def test_only_an_instance_with_too_few_agents_offers_to_spread_them() -> None:
    loads = instance_loads_of(proxies_with(0, 20, 20))
    assert loads[1].spread_query == "connection=tunnel&spread=1"
    assert loads[2].spread_query == ""
    assert spread_query_of("auth") == "connection=auth&spread=1"


def test_no_agents_at_all() -> None:
    """There is no largest count to compare with."""
    assert {load.percent_of_largest for load in instance_loads_of(proxies_with(0, 0)).values()} == {0}
