from __future__ import annotations

from dataclasses import replace

from dashboards.instances.lookup import find_by_id, find_by_name, query_term_of
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceState
from tests.fakes.campaign_fleet import CampaignFleet


def _named(table: FleetTable, *names: str, gone: int | None = None) -> FleetTable:
    """Return a table whose proxies have these names; `gone`: index of the one that was deregistered."""
    views = {
        index: replace(
            view,
            facts=replace(view.facts, name=names[index]),
            state=InstanceState.GONE if index == gone else view.state,
        )
        for index, view in table.instances.items()
    }
    return replace(table, instances=views)


def test_names_of_several_instances() -> None:
    """A registered instance comes before a deregistered one, then the newest; filters call them by their ids."""
    table = _named(CampaignFleet.of(3).table(1.0), "web", "web", "other", gone=1)
    found = find_by_name(table, "web")
    assert found is not None
    assert found.facts.id == "proxy-0"
    assert query_term_of(table, found) == "proxy-0"
    other = find_by_name(table, "other")
    assert other is not None
    assert query_term_of(table, other) == "other"
    newest = find_by_name(_named(table, "web", "web", "web"), "web")
    assert newest is not None
    assert newest.facts.id == "proxy-2"


def test_unknown_instances() -> None:
    """A name is no id."""
    table = _named(CampaignFleet.of(3).table(1.0), "a", "b", "c")
    assert find_by_id(table, "a") is None
    assert find_by_id(table, "proxy-1") is table.instances[1]
    assert find_by_name(table, "proxy-1") is None
