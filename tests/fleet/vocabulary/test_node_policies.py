"""What instances say of their policies."""

from __future__ import annotations

from fleet.protocol.policies.env_policies import HTTP_CLOSE_VARIABLE, PolicyValue, Source
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE
from fleet.vocabulary.node_policies import NodeReport, PolicyReport


def test_accepted_is_what_the_file_says() -> None:
    """What comes from elsewhere after a restart was not accepted over the network."""
    ttl = PolicyReport(
        PolicyValue(AUTH_TTL_VARIABLE, "10m", Source.DEFAULT),
        PolicyValue(AUTH_TTL_VARIABLE, "1m", Source.FILE),
    )
    close = PolicyValue(HTTP_CLOSE_VARIABLE, "true", Source.ENVIRONMENT)
    found = {AUTH_TTL_VARIABLE: ttl, HTTP_CLOSE_VARIABLE: PolicyReport(close, close)}
    assert NodeReport("a", "auth", "r", 1.0, "x", "", found).accepted_values == {AUTH_TTL_VARIABLE: "1m"}


def _report(now: PolicyValue, beneath: PolicyValue | None) -> NodeReport:
    return NodeReport("a", "auth", "r", 1.0, "x", "", {AUTH_TTL_VARIABLE: PolicyReport(now, now, beneath)})


def test_how_it_differs_from_what_is_wanted() -> None:
    """By meaning, not by letters; what is wanted no more must not come from the file."""
    ten = PolicyValue(AUTH_TTL_VARIABLE, "10m", Source.DEFAULT)
    file = PolicyValue(AUTH_TTL_VARIABLE, "60s", Source.FILE)
    environment = PolicyValue(AUTH_TTL_VARIABLE, "1m", Source.ENVIRONMENT)
    assert _report(file, ten).describe_drift({AUTH_TTL_VARIABLE: "1m"}) == ""
    assert "is 60s (file), not 2m" in _report(file, ten).describe_drift({AUTH_TTL_VARIABLE: "2m"})
    assert "is still 60s" in _report(file, ten).describe_drift({})
    assert _report(ten, None).describe_drift({}) == ""
    assert "is 1m (env), not 10m" in _report(environment, ten).describe_drift({})
    assert "does not report" in _report(ten, ten).describe_drift({HTTP_CLOSE_VARIABLE: "true"})


def test_what_it_runs_with_once_that_is_accepted() -> None:
    """The command line wins; unset, what is beneath the file comes back."""
    ten = PolicyValue(AUTH_TTL_VARIABLE, "10m", Source.DEFAULT)
    file, flag = (
        PolicyValue(AUTH_TTL_VARIABLE, "60s", Source.FILE),
        PolicyValue(AUTH_TTL_VARIABLE, "5s", Source.FLAG),
    )
    assert PolicyReport(file, file, ten).text_with_desired("2m") == "2m"
    assert PolicyReport(file, file, ten).text_with_desired("") == "10m"
    assert PolicyReport(file, file).text_with_desired("") == ""
    assert PolicyReport(ten, ten).text_with_desired("") == "10m"
    assert PolicyReport(flag, flag, flag).text_with_desired("2m") == "5s"
