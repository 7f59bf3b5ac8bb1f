from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.instances.facts import find_forecast_reason, find_state_start
from fleet.protocol.destination.health import DrainRequest, Health
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.instances import InstanceState
from tests.fakes.campaign_fleet import CampaignFleet
from tests.fakes.history_rows import create_instance_change

NOW = 1_700_000_000.0
_TABLE = CampaignFleet.on_auths(1).table(NOW)


def test_reasons_of_a_source() -> None:
    """A proxy needs the tunnels of each agent, an auth the agents of each auth."""
    auth = next(view for view in _TABLE.instances.values() if view.facts.name == "auth-0")
    reasons = {Capability.AGENT_TO_AUTH: "No auths.", Capability.TUNNELS_BY_AGENT: "No tunnels."}
    assert find_forecast_reason(_TABLE, auth, reasons) == "No auths."
    assert find_forecast_reason(_TABLE, auth, {}) == ""
    without_tunnels = replace(_TABLE, fleet=replace(_TABLE.fleet, has_tunnels=False))
    assert find_forecast_reason(without_tunnels, _TABLE.instances[0], reasons) == "No tunnels."
    assert find_forecast_reason(_TABLE, _TABLE.instances[0], reasons) == ""


@pytest.mark.django_db
def test_start_of_a_failure_is_observed() -> None:
    """Of a failing instance polls know it; of any other the history does."""
    create_instance_change("proxy-0", NOW - 50, "unknown", "ok")
    view = _TABLE.instances[0]
    assert find_state_start("default", view, NOW) == NOW - 50
    failing_view = replace(view, state=InstanceState.SILENT, facts=replace(view.facts, sick_since=NOW - 7))
    assert find_state_start("default", failing_view, NOW) == NOW - 7
    draining_view = replace(view, drain_request=DrainRequest("full", NOW - 5))
    assert find_state_start("default", draining_view, NOW) == NOW - 5
    degraded_view = replace(draining_view, health=Health.DEGRADED, health_since=NOW - 3)
    assert find_state_start("default", degraded_view, NOW) == NOW - 3
