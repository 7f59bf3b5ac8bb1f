from __future__ import annotations

from dataclasses import replace

import pytest

from dashboards.instances.page import check_rows_of, heartbeat_of, links_of
from fleet.vocabulary.instances import ServingStatus
from tests.fakes.campaign_fleet import CampaignFleet

_VIEW = CampaignFleet.of(1).table(1.0).instances[0]


@pytest.mark.parametrize(
    ("now", "percent", "is_late", "is_expired"),
    [
        (1000.0, 0, False, False),
        (1005.0, 50, False, False),
        (1009.5, 95, True, False),
        (1011.0, 100, True, True),
    ],
)
def test_heartbeat_against_its_ttl(now: float, percent: int, is_late: bool, is_expired: bool) -> None:
    """Heartbeats are sent after half of the TTL: later than 0.9 of it is late."""
    view = replace(_VIEW, facts=replace(_VIEW.facts, ttl=10.0, expires_at=1010.0))
    heartbeat = heartbeat_of(view, now)
    assert heartbeat is not None
    assert (heartbeat.percent, heartbeat.is_late, heartbeat.is_expired) == (percent, is_late, is_expired)
    assert heartbeat_of(_VIEW, now) is None


def test_checks_have_the_problem() -> None:
    """What grpc.health.v1 and `/readyz` responded last; nothing without a response."""
    facts = replace(
        _VIEW.facts,
        serving=ServingStatus.NOT_SERVING,
        serving_problem="it starts",
        serving_at=9.0,
        readyz=503,
    )
    rows = [(check, text) for check, text, _, _ in check_rows_of(replace(_VIEW, facts=facts), 10.0)]
    assert rows == [("gRPC health", "NOT_SERVING: it starts"), ("/readyz", "503")]
    assert check_rows_of(_VIEW, 10.0) == []


def test_links_quote_names() -> None:
    """A name with a space stays one filter; the silence is of the cause, whatever its name."""
    view = replace(_VIEW, facts=replace(_VIEW.facts, id="a b", name="web proxy"))
    links = links_of(view, "web proxy", None)
    assert links.agents == "/agents/?proxy=web+proxy"
    assert links.map == "/map/?q=%27proxy:web+proxy%27"
    assert links.reconnect == "/reconnect/?proxy=web+proxy"
    assert links.silence == "/silences/new/?matchers=cause%3D%27proxy%2Fa+b%27"
    assert links.service == "/instances/a%20b/service/"
