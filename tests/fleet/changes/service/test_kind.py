"""Undo and progress of service changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.changes import ChangeRefusedError
from fleet.changes.kinds import kind_of
from fleet.models.changes import Change
from fleet.models.drains import Drain
from fleet.models.moments import to_moment
from fleet.vocabulary.changes import ChangeState
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fakes.step_contexts import InMemoryReader, record_snapshot_of
from tests.fleet.changes.conftest import actor_of
from tests.fleet.changes.service.conftest import ServiceScenario

MakeScenario = Callable[[CampaignFleet], ServiceScenario]


def _undo(scenario: ServiceScenario, change: Change) -> Change:
    record = record_snapshot_of(InMemoryReader(scenario.fleet.table), scenario.now)
    return kind_of(change).undo(change, actor_of(scenario.user), to_moment(scenario.now), record)


def test_undo_brings_the_instance_back(make_scenario: MakeScenario) -> None:
    """A plan of its own; when it is carried out, the first change is undone."""
    scenario = make_scenario(CampaignFleet.of(9))
    change = scenario.step(scenario.confirm(scenario.plan("proxy-1")), times=10)
    assert kind_of(change).can_undo(change)
    undo = _undo(scenario, change)
    assert (undo.state, undo.title) == (ChangeState.PLANNED, "Bring proxy-1 back into service")
    undo = scenario.step(scenario.confirm(undo))
    assert undo.state == ChangeState.VERIFYING
    assert not Drain.objects.get().is_drained
    change.refresh_from_db()
    assert change.state == ChangeState.UNDONE
    assert scenario.step(undo).state == ChangeState.VERIFIED


def test_undo_of_an_overtaken_change_is_refused(make_scenario: MakeScenario) -> None:
    """Somebody brought the instance back since."""
    scenario = make_scenario(CampaignFleet.of(9))
    change = scenario.step(scenario.confirm(scenario.plan("proxy-1")), times=10)
    assert kind_of(change).can_undo(change)
    scenario.request("proxy-1", is_drained=False)
    assert not kind_of(change).can_undo(change)
    with pytest.raises(ChangeRefusedError, match="proxy-1 was brought back into service again since"):
        _undo(scenario, change)


def test_progress_counts_agents_or_the_instance(make_scenario: MakeScenario) -> None:
    """With and without a campaign."""
    scenario = make_scenario(CampaignFleet.of(9))
    change = scenario.step(scenario.confirm(scenario.plan("proxy-1")), times=10)
    assert kind_of(change).progress_of(change, scenario.now)["succeeded_count"] == 3
    drain = scenario.request("proxy-0", is_drained=True)
    assert dict(kind_of(drain).progress_of(drain, scenario.now)) == {
        "total_count": 1,
        "finished_count": 0,
        "failed_count": 0,
        "percent": 0,
    }
