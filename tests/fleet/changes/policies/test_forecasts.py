from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.changes.policies.forecasts import (
    EffectTime,
    PolicyInstance,
    TTLOutlook,
    forecast_restarts,
    forecast_ttl,
    ttl_load_of,
)


def _ttl(before: float, after: float, *, role: str = "proxy", compact: bool = False) -> TTLOutlook:
    return forecast_ttl(
        before,
        after,
        role=role,
        instance_count=4,
        proxy_count=4,
        tunnel_count=100,
        compact=compact,
        round_interval=5.0,
    )


def test_lower_ttl_detects_sooner_and_costs_more() -> None:
    """From 10 min to 1 min: ten times the writes."""
    outlook = _ttl(600.0, 60.0)
    assert (outlook.before.detection_seconds, outlook.after.detection_seconds) == (605.0, 65.0)
    assert outlook.after.writes_per_second == pytest.approx(10 * outlook.before.writes_per_second)
    assert outlook.after.messages_per_second > outlook.before.messages_per_second
    assert outlook.warnings == ()


@pytest.mark.parametrize("compact", [True, False])
def test_detection_later_than_the_rfd_has_a_warning(compact: bool) -> None:
    """The default TTL detects within 13 min in both modes; 15 min does not."""
    assert _ttl(60.0, 600.0, compact=compact).after.detection_seconds < 780.0
    assert not any("RFD 226" in warning for warning in _ttl(60.0, 600.0, compact=compact).warnings)
    long = _ttl(900.0, 900.0, compact=compact)
    assert "longer than the 13 min that RFD 226 wants to shorten" in long.warnings[0]
    assert _ttl(900.0, 900.0, role="auth", compact=compact).warnings == ()


def test_increased_and_very_short_ttls_have_a_warning() -> None:
    """Increased: mixed fleets look expired. Below three polls: Refloat would be wrong."""
    assert "The TTL increases. A proxy with" in _ttl(60.0, 600.0).warnings[0]
    assert "The TTL increases. An auth with" in _ttl(60.0, 600.0, role="auth").warnings[0]
    assert "three polls of Refloat" in _ttl(60.0, 14.0).warnings[0]


def test_ttl_of_auths_causes_no_discovery_messages() -> None:
    """Agents discover proxies only."""
    assert _ttl(600.0, 60.0, role="auth").after.messages_per_second == 0


@given(ttl=st.floats(1.0, 3600.0), tunnels=st.integers(0, 10**6), compact=st.booleans())
def test_load_grows_as_the_ttl_decreases(ttl: float, tunnels: int, compact: bool) -> None:
    """Half the TTL is never cheaper and never slower."""
    long, short = (
        ttl_load_of(seconds, instance_count=4, proxy_count=4, tunnel_count=tunnels, compact=compact)
        for seconds in (ttl, ttl / 2)
    )
    assert short.detection_seconds <= long.detection_seconds
    assert short.writes_per_second >= long.writes_per_second
    assert short.messages_per_second >= long.messages_per_second
    assert short.names_per_second >= long.names_per_second


def test_restarts_for_a_policy_read_at_connect() -> None:
    """Agents of restarted auths read it at once; agents with older values read it later."""
    auths = {"a": PolicyInstance("auth-1", True, 10), "b": PolicyInstance("auth-2", False, 20)}
    outlook = forecast_restarts(auths, EffectTime.AT_CONNECT, stale_count=4)
    assert (outlook.restarted_names, outlook.affected_now_count, outlook.affected_later_count) == (
        ("auth-2",),
        20,
        4,
    )
    assert "1 of 2 instances must restart: auth-2. 20 agents" in outlook.explanation
    assert "4 more with their next connection" in outlook.explanation


def test_no_restart_without_changed_instances() -> None:
    outlook = forecast_restarts({"a": PolicyInstance("auth-1", True, 10)}, EffectTime.AT_START)
    assert (outlook.restarted_names, outlook.explanation) == ((), "No instance needs a restart.")
