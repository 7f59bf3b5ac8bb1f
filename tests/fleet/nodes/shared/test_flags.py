"""Types of flags and their errors."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from fleet.nodes.shared import flags
from fleet.nodes.shared.addresses import ADDRESSES
from fleet.protocol.destination.health import LITERAL_SETTINGS, RECOMMENDED_SETTINGS


@click.command()
@click.option("--ttl", type=flags.TTL(), envvar="SOME_TTL", default="10m")
@click.option("--wait", type=flags.DURATION, default="0s")
@click.option("--at", type=ADDRESSES, default="a:1")
@click.option("--id", "id_", type=flags.HOST_ID, default=None)
def show(ttl: float, wait: float, at: object, id_: str | None) -> None:
    click.echo(repr((ttl, wait, at, id_)))


def invoke(*args: str, **env: str) -> tuple[int, str]:
    invocation = CliRunner().invoke(show, args, env=env)
    return invocation.exit_code, invocation.output


def test_flag_values_are_converted() -> None:
    """Durations become seconds, addresses become pairs, and ids get their usual format."""
    code, output = invoke(
        "--wait", "1m30s", "--at", "h:1, [::1]:2", "--id", "6F1D6F0E8A0B5C6E9F550A3C6B1D2E7F", SOME_TTL="2s"
    )
    assert code == 0
    assert output == "(2.0, 90.0, (('h', 1), ('::1', 2)), '6f1d6f0e-8a0b-5c6e-9f55-0a3c6b1d2e7f')\n"


@pytest.mark.parametrize(
    ("args", "env", "message"),
    [
        (("--ttl", "0s"), {}, "--ttl: '0s' is shorter than 100ms"),
        ((), {"SOME_TTL": "1ns"}, "SOME_TTL: '1ns' is shorter than 100ms"),
        ((), {"SOME_TTL": "5"}, "SOME_TTL: '5' is not a duration"),
        (("--wait", "-1s"), {}, "'-1s' is negative"),
        (("--wait", "x"), {}, "'x' is not a duration"),
        (("--at", "h:1,nonsense"), {}, "'nonsense' is not host:port"),
        (("--id", "1"), {}, "'1' is not a UUID"),
    ],
)
def test_invalid_flag_or_variable_is_named(args: tuple[str, ...], env: dict[str, str], message: str) -> None:
    """The error names the flag or the environment variable, and the exit code is 2."""
    code, output = invoke(*args, **env)
    assert code == 2
    assert message in output


@pytest.mark.parametrize(
    ("args", "env", "is_literal"),
    [
        ((), {}, False),
        (("--destination-health", "literal"), {}, True),
        ((), {"REFLOAT_DESTINATION_HEALTH": "literal"}, True),
        (("--destination-health", "recommended"), {"REFLOAT_DESTINATION_HEALTH": "literal"}, False),
    ],
)
def test_destination_health_comes_from_flag_environment_or_default(
    args: tuple[str, ...], env: dict[str, str], is_literal: bool
) -> None:
    """The flag overrides the environment, and the default is the recommended settings; other values are refused."""
    settings = []

    @click.command()
    @flags.destination_health_option
    def read(destination_health: object) -> None:
        settings.append(destination_health)

    assert CliRunner().invoke(read, args, env=env).exit_code == 0
    assert settings == [LITERAL_SETTINGS if is_literal else RECOMMENDED_SETTINGS]
    invocation = CliRunner().invoke(read, ["--destination-health", "mine"])
    assert (invocation.exit_code, "'recommended', 'literal'" in invocation.output) == (2, True)
