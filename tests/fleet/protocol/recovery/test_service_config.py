"""GetServiceConfig's answer in both dialects, and from the environment."""

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
    """The enum dialect is what shipped upstream, byte for byte."""
    assert service_config.encode(config, Dialect.UPSTREAM).hex() == golden
    assert service_config.decode(bytes.fromhex(golden)) == config


def test_encode_both_holds_the_string_then_the_enum() -> None:
    """One answer serves a decoder of either dialect: the string, then the number, under field 1."""
    policy = "0a097265636f6e6e6563740802"
    assert policy in service_config.encode(RECONNECT, Dialect.BOTH).hex()


@pytest.mark.parametrize("dialect", list(Dialect))
@pytest.mark.parametrize("mode", list(PickHealthyMode))
@pytest.mark.parametrize("service", [None, "", "auth", "x" * 300])
def test_decode_reads_either_dialect(dialect: Dialect, mode: PickHealthyMode, service: str | None) -> None:
    """What is written in any dialect reads back the same."""
    config = ServiceConfig(mode, service)
    assert service_config.decode(service_config.encode(config, dialect)) == config


@pytest.mark.parametrize(
    ("answer", "config"),
    [
        ("", DEFAULT),
        ("0a060a040a020807", DEFAULT),  # an enum value of the future
        ("0a080a060a040a026869", DEFAULT),  # mode "hi"
        (
            "0a060a040a0208021801",
            ServiceConfig(PickHealthyMode.RECONNECT, None),
        ),  # an unknown varint field at the top
    ],
)
def test_decode_unknown_reads_as_pick_first(answer: str, config: ServiceConfig) -> None:
    """What we do not know is left out; an unknown mode is pick_first."""
    assert service_config.decode(bytes.fromhex(answer)) == config


@given(st.binary(max_size=64))
def test_decode_garbage(answer: bytes) -> None:
    """Any bytes give a config or one kind of error."""
    with contextlib.suppress(ServiceConfigError):
        service_config.decode(answer)


SEED_RECONNECT = """{
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
        ({service_config.RFD_VARIABLE: SEED_RECONNECT}, RECONNECT),
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
    """Both variables, both spellings, the RFD's own sample with its trailing commas."""
    assert service_config.from_environment(environment) == config


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({service_config.RFD_VARIABLE: "{"}, "is not JSON"),
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
            {service_config.RFD_VARIABLE: SEED_RECONNECT, service_config.UPSTREAM_VARIABLE: "{}"},
            "differ",
        ),
    ],
)
def test_from_environment_that_stops_the_start(environment: dict[str, str], says: str) -> None:
    """A value that cannot be used is an error that names the variable and the fault."""
    with pytest.raises(ServiceConfigError, match="TELEPORT_UNSTABLE_GRPC") as caught:
        service_config.from_environment(environment)
    assert says in str(caught.value)


@pytest.mark.parametrize("variable", [service_config.RFD_VARIABLE, service_config.UPSTREAM_VARIABLE])
def test_environment_that_is_nested_too_deep(variable: str) -> None:
    """The auth does not start, with a sentence that names the variable."""
    with pytest.raises(ServiceConfigError, match=f"{variable} is not JSON"):
        service_config.from_environment({variable: "[" * 100_000})
