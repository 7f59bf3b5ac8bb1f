"""The JSON policy in the editor."""

from __future__ import annotations

import json

import pytest

from fleet.protocol.destination.instance_status import HEALTH_SERVICES
from fleet.protocol.policies import policy_json
from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.service_config import (
    RFD_VARIABLE,
    UPSTREAM_VARIABLE,
    PickHealthyMode,
    ServiceConfig,
)

_RFD_SAMPLE = """{"grpc_client_lb_policy": {
  "loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "reconnect",}}],
  "healthCheckConfig": {"serviceName": ""}
}}"""


def test_rfd_sample_with_trailing_commas_is_accepted() -> None:
    """The RFD's sample can be pasted, and is stored on one line."""
    assert policy_json.problems(RFD_VARIABLE, _RFD_SAMPLE) == ()
    assert "\n" not in policy_json.canonical(_RFD_SAMPLE)
    assert json.loads(policy_json.canonical(_RFD_SAMPLE))["grpc_client_lb_policy"]


def _rfd(body: object) -> str:
    return json.dumps({"grpc_client_lb_policy": body})


def _mode(mode: object) -> dict[str, object]:
    return {"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": mode}}]}


@pytest.mark.parametrize(
    ("text", "expected_problem"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("{}", "grpc_client_lb_policy: this top-level field is missing"),
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
def test_mistake_is_reported_with_its_path(text: str, expected_problem: str) -> None:
    """No unknown key is dropped silently."""
    assert any(expected_problem in problem for problem in policy_json.problems(RFD_VARIABLE, text))


def test_unknown_and_missing_field_are_separate_problems() -> None:
    """Each names its field, so that both can stand in one sentence."""
    assert policy_json.problems(RFD_VARIABLE, '{"foo": 1}') == (
        "foo: is not a field (fields: grpc_client_lb_policy)",
        "grpc_client_lb_policy: this top-level field is missing",
    )


@pytest.mark.parametrize("name", [RFD_VARIABLE, UPSTREAM_VARIABLE])
def test_text_that_is_not_json_gets_a_valid_example(name: str) -> None:
    """The name of a mode alone is a common mistake."""
    (problem,) = policy_json.problems(name, "reconnect")
    example = problem.partition(" Example: ")[2]
    assert policy_json.problems(name, example) == ()
    assert service_config.from_environment({name: example}) == ServiceConfig(PickHealthyMode.RECONNECT, "")


def test_preview_of_both_dialects() -> None:
    """Both dialects contain the same settings."""
    config = ServiceConfig(PickHealthyMode.RECONNECT, "")
    rfd, teleport = policy_json.preview(config)
    assert rfd.config == config
    assert teleport.config == config
    assert '"reconnect"' in rfd.document
    assert '"MODE_RECONNECT"' in teleport.document
    assert "leaves an unhealthy auth for another one on its own" in rfd.behaviour
    for preview, name in ((rfd, RFD_VARIABLE), (teleport, UPSTREAM_VARIABLE)):
        assert policy_json.problems(name, preview.document) == ()


@pytest.mark.parametrize(
    ("config", "expected_text"),
    [
        (ServiceConfig(), "keeps its connection"),
        (
            ServiceConfig(PickHealthyMode.PICK_FIRST, ""),
            "keeps its connection until it breaks or the auth drains; ",
        ),
        (ServiceConfig(PickHealthyMode.RECONNECT, None), "has no health check"),
        (ServiceConfig(PickHealthyMode.RECONNECT, "x"), "of service 'x'"),
    ],
)
def test_sentence_describes_what_agents_do(config: ServiceConfig, expected_text: str) -> None:
    """A mode without its health check, and a health check without its mode, are described."""
    assert all(expected_text in preview.behaviour for preview in policy_json.preview(config))


@pytest.mark.parametrize("name", [RFD_VARIABLE, UPSTREAM_VARIABLE])
@pytest.mark.parametrize("text", ["[" * 16_000, '{"a":' * 3_000])
def test_deep_nesting_is_a_problem(name: str, text: str) -> None:
    """Deep nesting is reported like other invalid JSON, without an exception."""
    (problem,) = policy_json.problems(name, text)
    assert problem.startswith("is not JSON: ")


def test_health_check_in_pick_first_gives_a_warning() -> None:
    """Refloat's agents do not watch health then; Teleport's watch it and stay connected."""
    config = ServiceConfig(PickHealthyMode.PICK_FIRST, "")
    rfd, teleport = policy_json.preview(config)
    assert (
        "the health check has no effect in mode pick_first, so the agent stays with an unhealthy auth"
        in rfd.behaviour
    )
    assert "still sends its calls to an unhealthy auth" in teleport.behaviour
    assert policy_json.warnings(config) == (
        "In mode pick_first the health check has no effect: agents stay with an unhealthy auth.",
    )


@pytest.mark.parametrize("service", [None, *HEALTH_SERVICES])
def test_served_health_service_gives_no_warning(service: str | None) -> None:
    """Auths serve the whole server's name and those of HEALTH_SERVICES."""
    config = ServiceConfig(PickHealthyMode.RECONNECT, service)
    assert policy_json.warnings(config) == ()
    assert not any("no auth serves" in preview.behaviour for preview in policy_json.preview(config))


def test_unserved_health_service_gives_a_warning() -> None:
    """The JSON is valid; the sentence describes what agents do instead."""
    config = ServiceConfig(PickHealthyMode.RECONNECT, "fleet.Agents")
    rfd, teleport = policy_json.preview(config)
    assert policy_json.problems(RFD_VARIABLE, rfd.document) == ()
    (warning,) = policy_json.warnings(config)
    assert "No auth serves the health service 'fleet.Agents'; auths serve '', 'refloat.preferred'" in warning
    assert "SERVICE_UNKNOWN" in warning
    assert "of service 'fleet.Agents', which no auth serves, then of the whole server" in rfd.behaviour
    assert "of the whole server, not of service 'fleet.Agents'" in teleport.behaviour
