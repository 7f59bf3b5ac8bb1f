"""The env-driven policies."""

from __future__ import annotations

import pytest

from fleet.protocol.policies import env_policies
from fleet.protocol.policies.env_policies import BY_NAME, HTTP_CLOSE_VARIABLE, POLICIES, PolicyError, Source
from fleet.protocol.recovery.announce import AUTH_TTL_VARIABLE, PROXY_TTL_VARIABLE
from fleet.protocol.recovery.discovery import COMPACT_VARIABLE
from fleet.protocol.recovery.reconnect_schedule import VARIABLE as RECONNECT_VARIABLE
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
_WRONG = {
    RFD_VARIABLE: ("{}", "nonsense", '{"grpc_client_lb_policy": {"loadBalancingConfig": 1}}'),
    UPSTREAM_VARIABLE: (_RECONNECT, "[]"),
    AUTH_TTL_VARIABLE: ("soon", "-1s", "0s", "10"),
    PROXY_TTL_VARIABLE: ("soon", "-1s", "0s", "10"),
    HTTP_CLOSE_VARIABLE: ("yes", "2"),
    COMPACT_VARIABLE: ("on",),
    RECONNECT_VARIABLE: ("10ms", "often", "-1h"),
}
_GOOD = {
    RFD_VARIABLE: _RECONNECT,
    UPSTREAM_VARIABLE: _BARE,
    AUTH_TTL_VARIABLE: "30s",
    PROXY_TTL_VARIABLE: "1m",
    HTTP_CLOSE_VARIABLE: "true",
    COMPACT_VARIABLE: "false",
    RECONNECT_VARIABLE: "1h",
}


def test_every_policy_is_tried() -> None:
    """No policy without its wrong values here; the names are those that nodes read."""
    assert set(_WRONG) == set(_GOOD) == set(BY_NAME)
    assert http_close.VARIABLE == HTTP_CLOSE_VARIABLE


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in _WRONG.items() for text in texts])
def test_wrong_value_is_named(name: str, text: str) -> None:
    """Each wrong value of each field is refused in a sentence that says which."""
    with pytest.raises(PolicyError) as caught:
        env_policies.clean(name, text)
    assert caught.value.name == name
    assert caught.value.sentence
    assert name not in caught.value.sentence


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_empty_and_unprintable_are_refused(policy: env_policies.EnvPolicy) -> None:
    """Unsetting is leaving out; a line break would be another variable in the file."""
    for text in ("", "  ", "1m\nPATH=x", "true\0"):
        with pytest.raises(PolicyError):
            env_policies.clean(policy.name, text)


def test_only_known_names() -> None:
    """PATH cannot be set from afar, nor a policy of the other role."""
    with pytest.raises(PolicyError, match="not a policy that can be set"):
        env_policies.clean("PATH", "x")
    kept, wrong = env_policies.check(
        "auth", {"LD_PRELOAD": "x", PROXY_TTL_VARIABLE: "1m", AUTH_TTL_VARIABLE: "1m"}
    )
    assert [error.name for error in wrong] == ["LD_PRELOAD", PROXY_TTL_VARIABLE]
    assert kept[AUTH_TTL_VARIABLE] == "1m"


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_default_is_what_a_node_runs_with_that_was_told_nothing(policy: env_policies.EnvPolicy) -> None:
    """The default that people read and the default that nodes use are one: for durations and switches alike."""
    assert policy.read({}) == policy.read({policy.name: policy.default})
    assert env_policies.is_same_value(policy.name, "", policy.default)


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in _WRONG.items() for text in texts])
def test_each_policy_is_read_as_what_it_is(name: str, text: str) -> None:
    """The reader of each variable refuses what is wrong for that one, and names it."""
    if BY_NAME[name].kind is env_policies.PolicyValueKind.JSON:
        return  # what is wrong with JSON is told by policy_json, with a place for each fault
    with pytest.raises(ValueError, match=name):
        BY_NAME[name].read({name: text})


def test_both_dialects_must_agree() -> None:
    """Two variables that say different things are refused at the second."""
    values = {RFD_VARIABLE: _RECONNECT, UPSTREAM_VARIABLE: _BARE}
    assert env_policies.check("auth", values)[1] == ()
    values[UPSTREAM_VARIABLE] = _BARE.replace("reconnect", "pick_first")
    assert [error.name for error in env_policies.check("auth", values)[1]] == [UPSTREAM_VARIABLE]


def test_effective_value_and_its_source() -> None:
    """Flag, file, environment, default, in this order."""
    environment = {AUTH_TTL_VARIABLE: "1m", HTTP_CLOSE_VARIABLE: "true", "PATH": "/bin"}
    file = {AUTH_TTL_VARIABLE: "2m", RFD_VARIABLE: _RECONNECT}
    found = {value.name: value for value in env_policies.effective_values("auth", environment, file, {})}
    assert set(found) == {policy.name for policy in env_policies.of_role("auth")}
    assert (found[AUTH_TTL_VARIABLE].text, found[AUTH_TTL_VARIABLE].source) == ("2m", Source.FILE)
    assert found[HTTP_CLOSE_VARIABLE].source is Source.ENVIRONMENT
    assert found[UPSTREAM_VARIABLE].source is Source.DEFAULT
    flagged = env_policies.effective_values("auth", environment, file, {AUTH_TTL_VARIABLE: "5m"})
    assert next(value for value in flagged if value.name == AUTH_TTL_VARIABLE).source is Source.FLAG
    read = env_policies.merge_environment(environment, flagged)
    assert read["PATH"] == "/bin"
    assert read[AUTH_TTL_VARIABLE] == "5m"
    assert UPSTREAM_VARIABLE not in read


@pytest.mark.parametrize(
    ("name", "one", "other", "equal"),
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
def test_same_by_meaning(name: str, one: str, other: str, equal: bool) -> None:
    """Drift is a difference in meaning, not in spelling."""
    assert env_policies.is_same_value(name, one, other) is equal


def test_file_round_trip() -> None:
    """What is written is read, and has a revision of its own."""
    values = {name: env_policies.clean(name, text) for name, text in _GOOD.items()}
    assert env_policies.parse_file(env_policies.format_file(values)) == values
    assert env_policies.revision_of(values) != env_policies.revision_of({})


@pytest.mark.parametrize(
    "text", ["nothing\n", "PATH=x\n", f"{AUTH_TTL_VARIABLE}=1m\n{AUTH_TTL_VARIABLE}=2m\n"]
)
def test_file_that_cannot_be_used(text: str) -> None:
    """A line that is none, a name that is none of ours, and the same name twice."""
    with pytest.raises(PolicyError):
        env_policies.parse_file(text)


def test_seconds() -> None:
    """Durations for arithmetic."""
    assert env_policies.seconds(AUTH_TTL_VARIABLE, "") == 600
    assert env_policies.seconds(RECONNECT_VARIABLE, "") == 0
    with pytest.raises(PolicyError):
        env_policies.seconds(AUTH_TTL_VARIABLE, "x")
