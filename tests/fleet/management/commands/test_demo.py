"""What `manage.py demo` refuses before it starts anything. The rest is in tests/flow/test_demo.py."""

from __future__ import annotations

import pytest
from django.core.management.base import CommandError

from fleet.management.commands.demo import Command


@pytest.mark.parametrize(
    ("flags", "says"),
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
def test_impossible_flags_are_refused_while_they_are_read(flags: list[str], says: str) -> None:
    """Nothing was started by then; the sentence names the flag, and what it takes."""
    with pytest.raises(CommandError) as caught:
        Command().create_parser("manage.py", "demo").parse_args(flags)
    assert says in str(caught.value)


def test_ordinary_flags() -> None:
    """Sizes and TTLs of the demo as README has them; a fleet without agents is one to add agents to."""
    parser = Command().create_parser("manage.py", "demo")
    usual, few = parser.parse_args([]), parser.parse_args(["--agents", "0", "--connections", "2"])
    assert (usual.auths, usual.proxies, usual.agents, usual.connections) == (3, 4, 200, None)
    assert (usual.announce_ttl, usual.agent_announce_ttl) == ("10s", "20s")
    assert (few.agents, few.connections) == (0, 2)
