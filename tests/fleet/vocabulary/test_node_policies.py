"""Policy reports of instances."""

from __future__ import annotations

from fleet.protocol.policies.env_policies import HTTP_CLOSE_VARIABLE, PolicySource, PolicyValue
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.vocabulary.node_policies import NodeReport, PolicyReport


def test_accepted_values_come_from_the_file() -> None:
    """Values of other sources were not accepted over the network."""
    ttl = PolicyReport(
        PolicyValue(AUTH_TTL_VARIABLE, "10m", PolicySource.DEFAULT),
        PolicyValue(AUTH_TTL_VARIABLE, "1m", PolicySource.FILE),
    )
    close = PolicyValue(HTTP_CLOSE_VARIABLE, "true", PolicySource.ENVIRONMENT)
    reports = {AUTH_TTL_VARIABLE: ttl, HTTP_CLOSE_VARIABLE: PolicyReport(close, close)}
    assert NodeReport("a", "auth", "r", 1.0, "x", "", reports).accepted_values == {AUTH_TTL_VARIABLE: "1m"}


def _report(now: PolicyValue, fallback: PolicyValue | None) -> NodeReport:
    return NodeReport("a", "auth", "r", 1.0, "x", "", {AUTH_TTL_VARIABLE: PolicyReport(now, now, fallback)})


def test_drift_compares_meanings_with_desired_values() -> None:
    """A value that is no longer desired must not come from the file."""
    ten = PolicyValue(AUTH_TTL_VARIABLE, "10m", PolicySource.DEFAULT)
    file = PolicyValue(AUTH_TTL_VARIABLE, "60s", PolicySource.FILE)
    environment = PolicyValue(AUTH_TTL_VARIABLE, "1m", PolicySource.ENVIRONMENT)
    assert _report(file, ten).describe_drift({AUTH_TTL_VARIABLE: "1m"}) == ""
    assert "is 60s (file), not 2m" in _report(file, ten).describe_drift({AUTH_TTL_VARIABLE: "2m"})
    assert "is still 60s" in _report(file, ten).describe_drift({})
    assert _report(ten, None).describe_drift({}) == ""
    assert "is 1m (env), not 10m" in _report(environment, ten).describe_drift({})
    assert "does not report" in _report(ten, ten).describe_drift({HTTP_CLOSE_VARIABLE: "true"})


def test_text_with_desired_value_respects_flags_and_fallback() -> None:
    """A flag takes precedence; an unset value falls back to the value below the file."""
    ten = PolicyValue(AUTH_TTL_VARIABLE, "10m", PolicySource.DEFAULT)
    file, flag = (
        PolicyValue(AUTH_TTL_VARIABLE, "60s", PolicySource.FILE),
        PolicyValue(AUTH_TTL_VARIABLE, "5s", PolicySource.FLAG),
    )
    assert PolicyReport(file, file, ten).text_after_accepting("2m") == "2m"
    assert PolicyReport(file, file, ten).text_after_accepting("") == "10m"
    assert PolicyReport(file, file).text_after_accepting("") == ""
    assert PolicyReport(ten, ten).text_after_accepting("") == "10m"
    assert PolicyReport(flag, flag, flag).text_after_accepting("2m") == "5s"
