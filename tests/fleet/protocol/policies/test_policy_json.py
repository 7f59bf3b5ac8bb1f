"""The JSON policy as somebody edits it."""

from __future__ import annotations

import json

import pytest

from fleet.protocol.destination.instance_status import HEALTH_SERVICES
from fleet.protocol.policies import policy_json
from fleet.protocol.recovery.service_config import (
    RFD_VARIABLE,
    UPSTREAM_VARIABLE,
    PickHealthyMode,
    ServiceConfig,
)

_GOOD = """{"grpc_client_lb_policy": {
  "loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect",}}],
  "healthCheckConfig": {"serviceName": ""}
}}"""


def test_rfd_sample_is_good_with_its_commas() -> None:
    """The RFD's own sample can be pasted, and is kept on one line."""
    assert policy_json.problems(RFD_VARIABLE, _GOOD) == ()
    assert "\n" not in policy_json.canonical(_GOOD)
    assert json.loads(policy_json.canonical(_GOOD))["grpc_client_lb_policy"]


def _rfd(body: object) -> str:
    return json.dumps({"grpc_client_lb_policy": body})


def _mode(mode: object) -> dict[str, object]:
    return {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": mode}}]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "has no top-level key 'grpc_client_lb_policy'"),
        (_rfd(1), "grpc_client_lb_policy: is not a JSON object"),
        (_rfd({}), "loadBalancingConfig: is missing"),
        (_rfd({"loadBalancingConfig": []}), "must be a list with at least one policy"),
        (_rfd({"loadBalancingConfig": [{}]}), "loadBalancingConfig[0]: must be an object with exactly one policy"),
        (_rfd({"loadBalancingConfig": [{"round_robin": {}}]}), "loadBalancingConfig[0].round_robin"),
        (_rfd({"loadBalancingConfig": [{"teleport_pick_healthy": 1}]}), "is not a JSON object"),
        (_rfd({"loadBalancingConfig": [{"teleport_pick_healthy": {"mdoe": "reconnect"}}]}), ".mdoe: is not a field"),
        (_rfd(_mode("recconect")), '.mode: "recconect" is not a mode'),
        (_rfd(_mode(None)), ".mode: null is not a mode"),
        (_rfd({**_mode("reconnect"), "healthCheck": {}}), "healthCheck: is not a field"),
        (_rfd({**_mode("reconnect"), "healthCheckConfig": 1}), "healthCheckConfig: is not a JSON object"),
        (_rfd({**_mode("reconnect"), "healthCheckConfig": {"serviceName": 1}}), "serviceName: is not a string"),
        (_rfd({**_mode("reconnect"), "healthCheckConfig": {"name": ""}}), "healthCheckConfig.name"),
        (" " * 20_000, "longer than"),
    ],
)  # fmt: skip
def test_wrong_says_where(text: str, says: str) -> None:
    """Every mistake is named by its place; nothing unknown is dropped in silence."""
    assert any(says in problem for problem in policy_json.problems(RFD_VARIABLE, text))


def test_preview_of_both_dialects() -> None:
    """Agents of either dialect are told the same, each in its own words."""
    config = ServiceConfig(PickHealthyMode.RECONNECT, "")
    rfd, teleport = policy_json.preview(config)
    assert rfd.config == config
    assert teleport.config == config
    assert '"reconnect"' in rfd.document
    assert '"MODE_RECONNECT"' in teleport.document
    assert "leaves an unhealthy auth for another one on its own" in rfd.sentence
    for told, name in ((rfd, RFD_VARIABLE), (teleport, UPSTREAM_VARIABLE)):
        assert policy_json.problems(name, told.document) == ()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (ServiceConfig(), "keeps its connection"),
        (ServiceConfig(PickHealthyMode.PICK_FIRST, ""), "keeps its connection until it breaks; "),
        (ServiceConfig(PickHealthyMode.RECONNECT, None), "has no health check"),
        (ServiceConfig(PickHealthyMode.RECONNECT, "x"), "of service 'x'"),
    ],
)
def test_sentence_says_what_agents_do(config: ServiceConfig, says: str) -> None:
    """A mode without its health check, and the other way round, is called what it is."""
    assert all(says in told.sentence for told in policy_json.preview(config))


@pytest.mark.parametrize("name", [RFD_VARIABLE, UPSTREAM_VARIABLE])
@pytest.mark.parametrize("text", ["[" * 16_000, '{"a":' * 3_000])
def test_deep_nesting_is_a_problem(name: str, text: str) -> None:
    """A sentence like any other text that is no JSON, not an error of ours."""
    (problem,) = policy_json.problems(name, text)
    assert problem.startswith("is not JSON: ")


def test_health_check_in_pick_first_is_called_without_effect() -> None:
    """No agent fails calls or leaves: ours do not watch, Teleport's watch and go on."""
    config = ServiceConfig(PickHealthyMode.PICK_FIRST, "")
    rfd, teleport = policy_json.preview(config)
    assert (
        "the health check has no effect in mode pick_first, so the agent stays with an unhealthy auth"
        in rfd.sentence
    )
    assert "still sends its calls to an unhealthy auth" in teleport.sentence
    assert policy_json.warnings(config) == (
        "In mode pick_first the health check has no effect: agents stay with an unhealthy auth.",
    )


@pytest.mark.parametrize("service", [None, *HEALTH_SERVICES])
def test_health_service_that_auths_serve_is_no_warning(service: str | None) -> None:
    """The whole server, and the names by which it says more of itself."""
    config = ServiceConfig(PickHealthyMode.RECONNECT, service)
    assert policy_json.warnings(config) == ()
    assert not any("no auth serves" in told.sentence for told in policy_json.preview(config))


def test_health_service_that_no_auth_serves_is_a_warning() -> None:
    """The JSON is valid, and agents can be told it: what they will do instead is said."""
    config = ServiceConfig(PickHealthyMode.RECONNECT, "fleet.Agents")
    rfd, teleport = policy_json.preview(config)
    assert policy_json.problems(RFD_VARIABLE, rfd.document) == ()
    (warning,) = policy_json.warnings(config)
    assert "No auth serves the health service 'fleet.Agents'; auths serve '', 'refloat.preferred'" in warning
    assert "SERVICE_UNKNOWN" in warning
    assert "of service 'fleet.Agents', which no auth serves, then of the whole server" in rfd.sentence
    assert "of the whole server, not of service 'fleet.Agents'" in teleport.sentence
