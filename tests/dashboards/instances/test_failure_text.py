from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.instances.failure_text import FailureForecast, forecast_failure
from fleet.monitoring.columns import HEALTH_CHECK
from fleet.monitoring.evidence import ReconnectMode
from tests.fakes.campaign_fleet import CampaignFleet

_TUNNELS = {"only": {0}, "also": {0}, "two": {0, 1}}


def _forecast_proxy(fleet: CampaignFleet) -> FailureForecast:
    table = fleet.table(1.0)
    forecast = forecast_failure(table, table.instances[0], "proxy-0")
    assert forecast is not None
    return forecast


@pytest.mark.parametrize(
    ("fleet", "sentence", "details"),
    [
        (CampaignFleet(_TUNNELS), "If proxy-0 fails now, 2 agents lose their only tunnel.", ()),
        (CampaignFleet({"a": {0}}), "If proxy-0 fails now, 1 agent loses its only tunnel.", ()),
        (CampaignFleet({"a": {1}}), "If proxy-0 fails now, no agent loses its only tunnel.", ()),
        (
            CampaignFleet({"a": {0}}, proxies=1),
            "If proxy-0 fails now, 1 agent loses its only tunnel.",
            ("No other proxy accepts connections, so they cannot open a new one.",),
        ),
        (CampaignFleet(_TUNNELS, sick_proxies={0}), "2 agents have their only tunnel with proxy-0.", ()),
        (
            CampaignFleet(_TUNNELS, silent_proxies={0}),
            "2 agents had their only tunnel with proxy-0.",
            ("1 agent that had a tunnel with proxy-0 has already connected elsewhere.",),
        ),
        (CampaignFleet({"a": {1}}, sick_proxies={0}), "No agent has its only tunnel with proxy-0.", ()),
    ],
)
def test_proxies(fleet: CampaignFleet, sentence: str, details: tuple[str, ...]) -> None:
    """What a failure would mean, or what the failure of now means."""
    forecast = _forecast_proxy(fleet)
    assert (forecast.sentence, forecast.details) == (sentence, details)
    assert forecast.query == ("only-proxy:proxy-0" if forecast.agent_count else "")


def _auth_forecast(modes: list[ReconnectMode], **fields: set[int]) -> FailureForecast:
    table = CampaignFleet.on_auths(len(modes), **fields).table(1.0)
    heartbeats = table.heartbeats.copy()
    heartbeats["mode"], heartbeats["flags"] = modes, HEALTH_CHECK
    auth = next(view for view in table.instances.values() if view.facts.name == "auth-0")
    forecast = forecast_failure(replace(table, heartbeats=heartbeats), auth, "auth-0")
    assert forecast is not None
    return forecast


def test_auths() -> None:
    """Agents by what they do; without another auth none of them moves."""
    modes = [ReconnectMode.RECONNECT] * 2 + [ReconnectMode.PICK_FIRST, ReconnectMode.UNKNOWN]
    forecast = _auth_forecast(modes)
    assert forecast.sentence == "If auth-0 fails now, 4 agents lose their auth."
    assert forecast.details == (
        "2 of them move to another auth automatically (reconnect, health check).",
        "1 of them stays until auth-0 closes the connection (pick_first, or no health check).",
        "1 of them does not report a reconnect mode, so Refloat cannot predict whether it moves.",
    )
    assert forecast.query.startswith("auth:auth-0 state:healthy ")
    assert _auth_forecast(modes, sick_auths={1}).details == (
        "No other auth accepts connections, so they cannot move.",
    )
    assert _auth_forecast([ReconnectMode.UNKNOWN] * 2).details == (
        "None of them reports a reconnect mode, so Refloat cannot predict whether they move.",
    )
    assert _auth_forecast([]).sentence == "If auth-0 fails now, no agent loses its auth."


def test_auth_that_failed() -> None:
    """How many agents still depend on it, and whether they move."""
    forecast = _auth_forecast([ReconnectMode.PICK_FIRST] * 2, sick_auths={0})
    assert forecast.sentence == "2 agents depend on auth-0."
    assert forecast.details == (
        "Both stay until auth-0 closes the connection (pick_first, or no health check).",
    )
    assert "state:stranded" in forecast.query
    assert _auth_forecast([], sick_auths={0}).sentence == "No agent depends on auth-0."


def test_past_moment() -> None:
    """The sentence is about that moment; who would have moved since is not predicted."""
    table = replace(CampaignFleet({"a": {0}}, proxies=1).table(1.0), is_past=True)
    forecast = forecast_failure(table, table.instances[0], "proxy-0")
    assert forecast is not None
    assert forecast.sentence == "If proxy-0 had failed then, 1 agent would have lost its only tunnel."
    assert forecast.details == ()


def test_no_forecast() -> None:
    """Without current data."""
    table = CampaignFleet.on_auths(1, stale=False).table(1.0)
    assert forecast_failure(replace(table, stale=True), table.instances[0], "proxy-0") is None
