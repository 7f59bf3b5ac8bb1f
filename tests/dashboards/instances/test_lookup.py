from __future__ import annotations

from dataclasses import replace

from dashboards.instances.lookup import find_by_id, find_by_name, query_term_of
from fleet.monitoring.views import FleetTable
from fleet.vocabulary.instances import InstanceState
from tests.fakes.campaign_fleet import CampaignFleet


def _with_names(table: FleetTable, *names: str, gone_index: int | None = None) -> FleetTable:
    """Return a table whose proxies have these names; `gone_index`: index of the one that was deregistered."""
    views = {
        index: replace(
            view,
            facts=replace(view.facts, name=names[index]),
            state=InstanceState.GONE if index == gone_index else view.state,
        )
        for index, view in table.instances.items()
    }
    return replace(table, instances=views)


def test_names_of_several_instances() -> None:
    """A registered instance comes before a deregistered one, then the newest; filters call them by their ids."""
    table = _with_names(CampaignFleet.of(3).table(1.0), "web", "web", "other", gone_index=1)
    matched_view = find_by_name(table, "web")
    assert matched_view is not None
    assert matched_view.facts.id == "proxy-0"
    assert query_term_of(table, matched_view) == "proxy-0"
    other_view = find_by_name(table, "other")
    assert other_view is not None
    assert query_term_of(table, other_view) == "other"
    newest = find_by_name(_with_names(table, "web", "web", "web"), "web")
    assert newest is not None
    assert newest.facts.id == "proxy-2"


def test_unknown_instances() -> None:
    """A name is no id."""
    table = _with_names(CampaignFleet.of(3).table(1.0), "a", "b", "c")
    assert find_by_id(table, "a") is None
    assert find_by_id(table, "proxy-1") is table.instances[1]
    assert find_by_name(table, "proxy-1") is None
