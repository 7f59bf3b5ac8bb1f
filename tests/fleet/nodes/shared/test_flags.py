"""Flags become values, or one sentence."""

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
    result = CliRunner().invoke(show, args, env=env)
    return result.exit_code, result.output


def test_values() -> None:
    """Durations as seconds, addresses as pairs, ids in their usual spelling."""
    code, output = invoke(
        "--wait", "1m30s", "--at", "h:1, [::1]:2", "--id", "6F1D6F0E8A0B5C6E9F550A3C6B1D2E7F", SOME_TTL="2s"
    )
    assert code == 0
    assert output == "(2.0, 90.0, (('h', 1), ('::1', 2)), '6f1d6f0e-8a0b-5c6e-9f55-0a3c6b1d2e7f')\n"


@pytest.mark.parametrize(
    ("args", "env", "says"),
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
def test_refusals(args: tuple[str, ...], env: dict[str, str], says: str) -> None:
    """What is wrong is named, with where it came from, and the exit code is 2."""
    code, output = invoke(*args, **env)
    assert code == 2
    assert says in output


@pytest.mark.parametrize(
    ("args", "env", "is_literal"),
    [
        ((), {}, False),
        (("--destination-health", "literal"), {}, True),
        ((), {"REFLOAT_DESTINATION_HEALTH": "literal"}, True),
        (("--destination-health", "recommended"), {"REFLOAT_DESTINATION_HEALTH": "literal"}, False),
    ],
)
def test_destination_health_is_chosen(args: tuple[str, ...], env: dict[str, str], is_literal: bool) -> None:
    """By flag, else by the environment, else what we recommend; anything else is refused."""
    seen = []

    @click.command()
    @flags.destination_health_option
    def read(destination_health: object) -> None:
        seen.append(destination_health)

    assert CliRunner().invoke(read, args, env=env).exit_code == 0
    assert seen == [LITERAL_SETTINGS if is_literal else RECOMMENDED_SETTINGS]
    refused = CliRunner().invoke(read, ["--destination-health", "mine"])
    assert (refused.exit_code, "'recommended', 'literal'" in refused.output) == (2, True)
