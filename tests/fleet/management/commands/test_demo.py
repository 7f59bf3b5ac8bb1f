"""Flags that `manage.py demo` refuses before it starts anything. The other tests are in tests/flow/test_demo.py."""

from __future__ import annotations

import pytest
from django.core.management.base import CommandError

from fleet.management.commands.demo import Command


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--agents", "-1"], "--agents: -1 is out of range: use 0 to 20000"),
        (["--agents", "many"], "--agents: 'many' is not a whole number"),
        (["--auths", "0"], "--auths: 0 is out of range: use 1 to 50"),
        (["--proxies", "201"], "--proxies: 201 is out of range: use 1 to 200"),
        (["--regions", "21"], "--regions: 21 is out of range: use 1 to 20"),
        (["--connections", "0"], "--connections: 0 is out of range: use at least 1"),
        (["--connections", "2", "--mesh"], "--mesh: not allowed with argument --connections"),
        (["--announce-ttl", "1ns"], "--announce-ttl: '1ns' is too short: use at least 100ms"),
        (["--agent-announce-ttl", "10"], "--agent-announce-ttl: '10' is not a duration"),
    ],
)
def test_invalid_flags_are_refused_by_the_parser(flags: list[str], message: str) -> None:
    """The message names the flag and the allowed values, and no program has started."""
    with pytest.raises(CommandError) as caught:
        Command().create_parser("manage.py", "demo").parse_args(flags)
    assert message in str(caught.value)


def test_flags_have_the_documented_defaults() -> None:
    """The README has the same sizes and TTLs; a fleet may have no agents."""
    parser = Command().create_parser("manage.py", "demo")
    defaults, without_agents = (
        parser.parse_args([]),
        parser.parse_args(["--agents", "0", "--connections", "2"]),
    )
    assert (defaults.auths, defaults.proxies, defaults.agents, defaults.connections) == (3, 4, 200, None)
    assert (defaults.announce_ttl, defaults.agent_announce_ttl) == ("10s", "20s")
    assert (without_agents.agents, without_agents.connections) == (0, 2)
