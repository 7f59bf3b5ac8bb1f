"""GetServiceConfig's response in both dialects, and from the environment."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.recovery import service_config
from fleet.protocol.recovery.service_config import Dialect, PickHealthyMode, ServiceConfig, ServiceConfigError

DEFAULT = ServiceConfig()
RECONNECT = ServiceConfig(PickHealthyMode.RECONNECT, "")


@pytest.mark.parametrize(
    ("config", "golden"),
    [(DEFAULT, "0a060a040a020801"), (RECONNECT, "0a0a0a040a02080212020a00")],
)
def test_encode_upstream_golden(config: ServiceConfig, golden: str) -> None:
    """The enum dialect matches Teleport's, byte for byte."""
    assert service_config.encode(config, Dialect.UPSTREAM).hex() == golden
    assert service_config.decode(bytes.fromhex(golden)) == config


def test_encode_both_holds_the_string_then_the_enum() -> None:
    """One response suits a decoder of either dialect: field 1 has the string, then the number."""
    policy = "0a097265636f6e6e6563740802"
    assert policy in service_config.encode(RECONNECT, Dialect.RFD_AND_UPSTREAM).hex()


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("mode", list(PickHealthyMode))
@pytest.mark.parametrize("service", [None, "", "auth", "x" * 300])
def test_decode_reads_either_dialect(dialect: Dialect, mode: PickHealthyMode, service: str | None) -> None:
    """Each dialect decodes to the same config."""
    config = ServiceConfig(mode, service)
    assert service_config.decode(service_config.encode(config, dialect)) == config


@pytest.mark.parametrize(
    ("response", "config"),
    [
        ("", DEFAULT),
        ("0a060a040a020807", DEFAULT),  # an unknown enum value
        ("0a080a060a040a026869", DEFAULT),  # mode "hi"
        (
            "0a060a040a0208021801",
            ServiceConfig(PickHealthyMode.RECONNECT, None),
        ),  # an unknown varint field at the top
    ],
)
def test_decode_unknown_reads_as_pick_first(response: str, config: ServiceConfig) -> None:
    """Unknown fields are ignored; an unknown mode is pick_first."""
    assert service_config.decode(bytes.fromhex(response)) == config


@given(st.binary(max_size=64))
def test_decode_any_bytes(response: bytes) -> None:
    """Any bytes give a config or ServiceConfigError."""
    with contextlib.suppress(ServiceConfigError):
        service_config.decode(response)


RFD_SAMPLE = """{
    "grpc_client_lb_policy": {
        "loadBalancingConfig": [{"teleport_pick_healthy": {
          "mode": "reconnect",
        }}],
        "healthCheckConfig": {
            "serviceName": ""
        }
    }
}"""


@pytest.mark.parametrize(
    ("environment", "config"),
    [
        ({}, DEFAULT),
        ({service_config.RFD_VARIABLE: ""}, DEFAULT),
        ({service_config.RFD_VARIABLE: RFD_SAMPLE}, RECONNECT),
        ({service_config.RFD_VARIABLE: '{"grpc_client_lb_policy": {}}'}, DEFAULT),
        (
            {
                service_config.UPSTREAM_VARIABLE: '{"load_balancing_config": [{"round_robin": {}}, '
                '{"teleport_pick_healthy": {"mode": "MODE_RECONNECT"}}], '
                '"health_check_config": {"service_name": ""}, "x": 1}'
            },
            RECONNECT,
        ),
        (
            {
                service_config.UPSTREAM_VARIABLE: '{"loadBalancingConfig": [{"teleportPickHealthy": {"mode": 2}}]}'
            },
            ServiceConfig(PickHealthyMode.RECONNECT, None),
        ),
        (
            {
                service_config.RFD_VARIABLE: '{"grpc_client_lb_policy": {"healthCheckConfig": {"serviceName": ",}"}}}',
                service_config.UPSTREAM_VARIABLE: '{"healthCheckConfig": {"serviceName": ",}"}}',
            },
            ServiceConfig(PickHealthyMode.PICK_FIRST, ",}"),
        ),
    ],
)
def test_from_environment(environment: dict[str, str], config: ServiceConfig) -> None:
    """Both variables, both spellings, and the RFD's own sample with its trailing commas."""
    assert service_config.from_environment(environment) == config


@pytest.mark.parametrize(
    ("environment", "expected_error"),
    [
        ({service_config.RFD_VARIABLE: "reconnect"}, "(char 0). Example: {"),
        ({service_config.RFD_VARIABLE: "[]"}, "is not a JSON object"),
        ({service_config.RFD_VARIABLE: '{"loadBalancingConfig": []}'}, "grpc_client_lb_policy"),
        ({service_config.UPSTREAM_VARIABLE: '{"loadBalancingConfig": {}}'}, "is not a list"),
        (
            {
                service_config.UPSTREAM_VARIABLE: '{"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": "x"}}]}'
            },
            "'x'",
        ),
        (
            {
                service_config.UPSTREAM_VARIABLE: '{"loadBalancingConfig": [{"teleport_pick_healthy": {"mode": true}}]}'
            },
            "True",
        ),
        ({service_config.UPSTREAM_VARIABLE: '{"healthCheckConfig": {"serviceName": 1}}'}, "serviceName"),
        (
            {service_config.RFD_VARIABLE: RFD_SAMPLE, service_config.UPSTREAM_VARIABLE: "{}"},
            "differ",
        ),
    ],
)
def test_from_environment_refuses_invalid_values(environment: dict[str, str], expected_error: str) -> None:
    """The error names the variable and the mistake."""
    with pytest.raises(ServiceConfigError, match="TELEPORT_UNSTABLE_GRPC") as caught:
        service_config.from_environment(environment)
    assert expected_error in str(caught.value)


@pytest.mark.parametrize("variable", [service_config.RFD_VARIABLE, service_config.UPSTREAM_VARIABLE])
def test_deep_nesting_in_the_environment_is_refused(variable: str) -> None:
    """The error names the variable."""
    with pytest.raises(ServiceConfigError, match=f"{variable} is not JSON"):
        service_config.from_environment({variable: "[" * 100_000})
