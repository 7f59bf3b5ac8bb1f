"""Steps of campaigns on old data, and with proxies that take long to answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User

from fleet import lease
from fleet.changes.campaigns import campaigns
from fleet.models.clusters import Cluster, ClusterLease
from fleet.monitoring.views import FleetTable
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fleet.changes.conftest import CampaignScenario


@pytest.mark.parametrize("elapsed_seconds", [1.0, 600.0], ids=["moved", "timed out"])
def test_result_comes_from_a_round_that_began_after_the_request(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch, elapsed_seconds: float
) -> None:
    """Older data neither shows that an agent moved nor that it failed to."""
    stubborn_agents = {f"agent-{n}" for n in range(3)} if elapsed_seconds > 60 else set()
    campaign = CampaignScenario(
        cluster,
        alice,
        CampaignFleet.of(3, stubborn_agents=stubborn_agents),
        rate_per_minute=6000,
        canary_size=0,
        failure_threshold_percent=100,
    )
    campaign.confirm()
    campaign.step(2)
    requested_at = campaign.now
    assert campaigns.counts_of(campaign.change).in_progress_count == 3
    read_table = campaign.fleet.table

    def read_table_of(as_of: float) -> None:
        def read(now: float) -> FleetTable:
            return replace(read_table(now), as_of=as_of)

        monkeypatch.setattr(campaign.fleet, "table", read)

    for as_of in (requested_at - 1, requested_at):
        read_table_of(as_of)
        campaign.step(seconds=elapsed_seconds)
        assert campaigns.counts_of(campaign.change).in_progress_count == 3
    read_table_of(requested_at + 0.5)
    campaign.step()
    counts = campaigns.counts_of(campaign.change)
    assert (counts.succeeded_count, counts.failed_count) == ((0, 3) if stubborn_agents else (3, 0))


@pytest.mark.parametrize("call_name", ["advise", "read_advice"])
def test_step_that_waits_for_slow_proxies_keeps_its_lease(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch, call_name: str
) -> None:
    """A call may last almost as long as a lease, and no other worker takes over."""
    fleet = CampaignFleet.of(9, stubborn_agents={f"agent-{n}" for n in range(9)})
    campaign = CampaignScenario(
        cluster, alice, fleet, rate_per_minute=6000, canary_size=0, timeout_seconds=3600
    )
    campaign.confirm()
    campaign.step(1 if call_name == "advise" else 3)
    call = getattr(fleet, call_name)
    called_proxies: list[str] = []

    def call_slowly(proxy: str, *args: Any) -> Any:
        called_proxies.append(proxy)
        campaign.now += lease.LEASE_TTL_BY_PURPOSE[lease.CHANGES].total_seconds() - 5
        with pytest.raises(lease.LeaseHeldError):
            lease.take(cluster.pk, lease.CHANGES, "another", campaign.moment)
        return call(proxy, *args)

    monkeypatch.setattr(fleet, call_name, call_slowly)
    campaign.step()
    assert sorted(called_proxies) == ["proxy-0", "proxy-1", "proxy-2"]


def test_slow_proxies_do_not_end_the_lease(
    cluster: Cluster, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three proxies that take 20 s each: the lease of 30 s is renewed before each."""
    campaign = CampaignScenario(cluster, alice, CampaignFleet.of(30), rate_per_minute=6000, canary_size=0)
    campaign.confirm()
    campaign.step()
    advise, remaining_seconds = campaign.fleet.advise, []

    def advise_slowly(*args: Any) -> Any:
        expires_at = ClusterLease.objects.get(change=campaign.change).expires_at
        remaining_seconds.append((expires_at - campaign.moment).total_seconds())
        campaign.now += 20
        return advise(*args)

    monkeypatch.setattr(campaign.fleet, "advise", advise_slowly)
    campaign.step()
    assert remaining_seconds == [30.0] * 3
