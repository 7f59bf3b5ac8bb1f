"""Policies that are set by environment variables."""

from __future__ import annotations

import pytest

from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import (
    BY_NAME,
    HTTP_CLOSE_VARIABLE,
    POLICIES,
    PolicyError,
    PolicySource,
)
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from fleet.protocol.recovery.discovery import COMPACT_VARIABLE
from fleet.protocol.recovery.reconnect_schedule import INTERVAL_VARIABLE as RECONNECT_VARIABLE
from fleet.protocol.recovery.service_config import RFD_VARIABLE, UPSTREAM_VARIABLE
from fleet.transport import http_close

_RECONNECT = (
    '{"grpc_client_lb_policy": {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}], '
    '"healthCheckConfig": {"serviceName": ""}}}'
)
_BARE = (
    '{"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect"}}], '
    '"healthCheckConfig": {"serviceName": ""}}'
)
_INVALID_TEXTS = {
    RFD_VARIABLE: ("{}", "nonsense", '{"grpc_client_lb_policy": {"loadBalancingConfig": 1}}'),
    UPSTREAM_VARIABLE: (_RECONNECT, "[]"),
    AUTH_TTL_VARIABLE: ("soon", "-1s", "0s", "10"),
    PROXY_TTL_VARIABLE: ("soon", "-1s", "0s", "10"),
    HTTP_CLOSE_VARIABLE: ("yes", "2"),
    COMPACT_VARIABLE: ("on",),
    RECONNECT_VARIABLE: ("10ms", "often", "-1h"),
}
_VALID_TEXTS = {
    RFD_VARIABLE: _RECONNECT,
    UPSTREAM_VARIABLE: _BARE,
    AUTH_TTL_VARIABLE: "30s",
    PROXY_TTL_VARIABLE: "1m",
    HTTP_CLOSE_VARIABLE: "true",
    COMPACT_VARIABLE: "false",
    RECONNECT_VARIABLE: "1h",
}


def test_every_policy_has_texts() -> None:
    """Every policy has valid and invalid texts here."""
    assert set(_INVALID_TEXTS) == set(_VALID_TEXTS) == set(BY_NAME)
    assert http_close.ENV_VARIABLE == HTTP_CLOSE_VARIABLE


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in _INVALID_TEXTS.items() for text in texts]
)
def test_invalid_value_is_refused(name: str, text: str) -> None:
    """The error has the policy's name and a sentence."""
    with pytest.raises(PolicyError) as caught:
        env_policies.normalize(name, text)
    assert caught.value.name == name
    assert caught.value.sentence
    assert name not in caught.value.sentence


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_empty_and_unprintable_are_refused(policy: env_policies.EnvPolicy) -> None:
    """A policy is unset by leaving it out; a line break would add another variable to the file."""
    for text in ("", "  ", "1m\nPATH=x", "true\0"):
        with pytest.raises(PolicyError):
            env_policies.normalize(policy.name, text)


def test_unknown_names_are_refused() -> None:
    """PATH cannot be set remotely, nor can a policy of the other role."""
    with pytest.raises(PolicyError, match="not a policy that can be set"):
        env_policies.normalize("PATH", "x")
    accepted_values, errors = env_policies.check(
        "auth", {"LD_PRELOAD": "x", PROXY_TTL_VARIABLE: "1m", AUTH_TTL_VARIABLE: "1m"}
    )
    assert [error.name for error in errors] == ["LD_PRELOAD", PROXY_TTL_VARIABLE]
    assert accepted_values[AUTH_TTL_VARIABLE] == "1m"


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_documented_default_is_the_effective_default(policy: env_policies.EnvPolicy) -> None:
    """The default that pages show is the one that instances use."""
    assert policy.read({}) == policy.read({policy.name: policy.default})
    assert env_policies.is_same_value(policy.name, "", policy.default)


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in _INVALID_TEXTS.items() for text in texts]
)
def test_reader_refuses_invalid_values(name: str, text: str) -> None:
    """The error names the variable."""
    if BY_NAME[name].kind is env_policies.PolicyValueKind.JSON:
        return  # policy_json reports the mistakes in JSON
    with pytest.raises(ValueError, match=name):
        BY_NAME[name].read({name: text})


def test_contradicting_dialects_are_refused() -> None:
    """The error is reported for the second variable."""
    values = {RFD_VARIABLE: _RECONNECT, UPSTREAM_VARIABLE: _BARE}
    assert env_policies.check("auth", values)[1] == ()
    values[UPSTREAM_VARIABLE] = _BARE.replace("reconnect", "pick_first")
    assert [error.name for error in env_policies.check("auth", values)[1]] == [UPSTREAM_VARIABLE]


def test_effective_value_and_its_source() -> None:
    """Precedence: flag, file, environment, default."""
    environment = {AUTH_TTL_VARIABLE: "1m", HTTP_CLOSE_VARIABLE: "true", "PATH": "/bin"}
    file = {AUTH_TTL_VARIABLE: "2m", RFD_VARIABLE: _RECONNECT}
    values = {value.name: value for value in env_policies.effective_values("auth", environment, file, {})}
    assert set(values) == {policy.name for policy in env_policies.of_role("auth")}
    assert (values[AUTH_TTL_VARIABLE].text, values[AUTH_TTL_VARIABLE].source) == ("2m", PolicySource.FILE)
    assert values[HTTP_CLOSE_VARIABLE].source is PolicySource.ENVIRONMENT
    assert values[UPSTREAM_VARIABLE].source is PolicySource.DEFAULT
    values_with_flag = env_policies.effective_values("auth", environment, file, {AUTH_TTL_VARIABLE: "5m"})
    assert (
        next(value for value in values_with_flag if value.name == AUTH_TTL_VARIABLE).source
        is PolicySource.FLAG
    )
    node_environment = env_policies.merge_environment(environment, values_with_flag)
    assert node_environment["PATH"] == "/bin"
    assert node_environment[AUTH_TTL_VARIABLE] == "5m"
    assert UPSTREAM_VARIABLE not in node_environment


@pytest.mark.parametrize(
    ("name", "text", "other_text", "is_same"),
    [
        (AUTH_TTL_VARIABLE, "60s", "1m", True),
        (AUTH_TTL_VARIABLE, "", "10m", True),
        (HTTP_CLOSE_VARIABLE, "1", "true", True),
        (HTTP_CLOSE_VARIABLE, "", "true", False),
        (COMPACT_VARIABLE, "", "true", True),
        (COMPACT_VARIABLE, "", "false", False),
        (RECONNECT_VARIABLE, "", "1h", False),
        (RFD_VARIABLE, _RECONNECT, _RECONNECT.replace(" ", "\n"), True),
        (RFD_VARIABLE, "", '{"grpc_client_lb_policy": {}}', True),
        (RFD_VARIABLE, "", _RECONNECT, False),
        (AUTH_TTL_VARIABLE, "rubbish", "1m", False),
    ],
)
def test_values_are_compared_by_meaning(name: str, text: str, other_text: str, is_same: bool) -> None:
    """Drift is a difference in meaning, not in spelling."""
    assert env_policies.is_same_value(name, text, other_text) is is_same


def test_file_round_trip() -> None:
    """A written file parses to the same values, and its revision depends on them."""
    values = {name: env_policies.normalize(name, text) for name, text in _VALID_TEXTS.items()}
    assert env_policies.parse_file(env_policies.format_file(values)) == values
    assert env_policies.revision_of(values) != env_policies.revision_of({})


@pytest.mark.parametrize(
    "text", ["nothing\n", "PATH=x\n", f"{AUTH_TTL_VARIABLE}=1m\n{AUTH_TTL_VARIABLE}=2m\n"]
)
def test_invalid_file_is_refused(text: str) -> None:
    """Lines without `=`, unknown names and repeated names are refused."""
    with pytest.raises(PolicyError):
        env_policies.parse_file(text)


def test_seconds_of_a_duration_policy() -> None:
    assert env_policies.duration_seconds(AUTH_TTL_VARIABLE, "") == 600
    assert env_policies.duration_seconds(RECONNECT_VARIABLE, "") == 0
    with pytest.raises(PolicyError):
        env_policies.duration_seconds(AUTH_TTL_VARIABLE, "x")


@pytest.mark.parametrize(
    ("typed_text", "text"),
    [("30 s", "30s"), ("1 min 30 s", "1m30s"), ("1 d", "24h0m0s"), ("60s", "60s"), (" 500ms ", "500ms")],
)
def test_typed_duration_is_accepted_in_both_forms(typed_text: str, text: str) -> None:
    """People type `30 s`, nodes read `30s`; a Go duration keeps its spelling, and nodes still read nothing else."""
    assert env_policies.check_typed("auth", {AUTH_TTL_VARIABLE: typed_text}) == (
        {AUTH_TTL_VARIABLE: text},
        (),
    )
    if " " in typed_text.strip():
        _, errors = env_policies.check("auth", {AUTH_TTL_VARIABLE: typed_text})
        assert [error.name for error in errors] == [AUTH_TTL_VARIABLE]


def test_typed_text_that_is_no_duration_shows_the_form_that_people_use() -> None:
    """Other policies keep their texts and errors."""
    values, errors = env_policies.check_typed("auth", {AUTH_TTL_VARIABLE: "30", HTTP_CLOSE_VARIABLE: "true"})
    assert values == {HTTP_CLOSE_VARIABLE: "true"}
    assert [error.sentence for error in errors] == [
        "'30' is not a duration. Enter a number with its unit: 24 h, 10 min, 90 s or 1 h 30 min"
    ]
    _, errors = env_policies.check_typed("auth", {"PATH": "10 s", HTTP_CLOSE_VARIABLE: "10 s"})
    assert [error.name for error in errors] == ["PATH", HTTP_CLOSE_VARIABLE]
