from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from fleet.changes.policies.plan import (
    PolicyProcess,
    TakesEffect,
    TTLOutlook,
    forecast_restarts,
    forecast_ttl,
    ttl_load_of,
)


def _ttl(before: float, after: float, *, role: str = "proxy", compact: bool = False) -> TTLOutlook:
    return forecast_ttl(
        before, after, role=role, instances=4, proxies=4, tunnels=100, compact=compact, round_interval=5.0
    )


def test_lower_ttl_is_seen_sooner_and_costs_more() -> None:
    """Ten minutes to one: detection within a TTL and the reading of the list, ten times the writes."""
    outlook = _ttl(600.0, 60.0)
    assert (outlook.before.detection, outlook.after.detection) == (605.0, 65.0)
    assert outlook.after.writes == pytest.approx(10 * outlook.before.writes)
    assert outlook.after.messages > outlook.before.messages
    assert outlook.warnings == ()


@pytest.mark.parametrize("compact", [True, False])
def test_detection_later_than_the_rfd_is_warned_of(compact: bool) -> None:
    """The default TTL is sooner than 13 minutes in either mode; a quarter of an hour is not."""
    assert _ttl(60.0, 600.0, compact=compact).after.detection < 780.0
    assert not any("RFD 226" in warning for warning in _ttl(60.0, 600.0, compact=compact).warnings)
    long = _ttl(900.0, 900.0, compact=compact)
    assert "longer than the 13m0s that RFD 226 wants to shorten" in long.warnings[0]
    assert _ttl(900.0, 900.0, role="auth", compact=compact).warnings == ()


def test_raising_and_very_short_ttls_are_warned_of() -> None:
    """Raising: mixed fleets look expired. Below three rounds: we ourselves would be wrong."""
    assert "The TTL increases" in _ttl(60.0, 600.0).warnings[0]
    assert "three polls of Refloat" in _ttl(60.0, 14.0).warnings[0]


def test_auths_ttl_sends_no_discovery() -> None:
    """Agents hear of proxies only."""
    assert _ttl(600.0, 60.0, role="auth").after.messages == 0


@given(ttl=some.floats(1.0, 3600.0), tunnels=some.integers(0, 10**6), compact=some.booleans())
def test_load_grows_as_the_ttl_falls(ttl: float, tunnels: int, compact: bool) -> None:
    """Law: half the TTL is never cheaper and never slower."""
    long, short = (
        ttl_load_of(one, instances=4, proxies=4, tunnels=tunnels, compact=compact) for one in (ttl, ttl / 2)
    )
    assert short.detection <= long.detection
    assert short.writes >= long.writes
    assert short.messages >= long.messages
    assert short.names >= long.names


def test_restarts_of_what_is_read_at_connect() -> None:
    """Agents of restarted auths read it then; those who connected before theirs had it, later."""
    auths = {"a": PolicyProcess("auth-1", True, 10), "b": PolicyProcess("auth-2", False, 20)}
    outlook = forecast_restarts(auths, TakesEffect.AT_CONNECT, stale_count=4)
    assert (outlook.restarted_names, outlook.affected_now_count, outlook.affected_later_count) == (
        ("auth-2",),
        20,
        4,
    )
    assert "1 of 2 instances must restart: auth-2. 20 agents" in outlook.sentence
    assert "4 more with their next connection" in outlook.sentence


def test_restarts_of_nothing() -> None:
    """All have it."""
    outlook = forecast_restarts({"a": PolicyProcess("auth-1", True, 10)}, TakesEffect.AT_START)
    assert (outlook.restarted_names, outlook.sentence) == ((), "No instance needs a restart.")
