"""The home proxies of simulated agents: evenly distributed, or as an operator configures.

docs/reference/simulated-fleet.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from fleet.nodes.shared.options import ParsedOption

#: Number of agents by proxy name. Proxies that are not named share the rest evenly.
Homes = tuple[tuple[str, int], ...]


class HomesError(ValueError):
    """The agents cannot be distributed like this."""


def parse_homes(text: str) -> Homes:
    """Read `proxy-14=207,proxy-3=10`. Raises HomesError."""
    homes: dict[str, int] = {}
    for part in text.split(","):
        name, _, count = part.strip().partition("=")
        if not (name and count.isascii() and count.isdigit()):
            raise HomesError(f"{part.strip()!r} is not PROXY=AGENTS")
        if name in homes:
            raise HomesError(f"{name} occurs twice")
        homes[name] = int(count)
    return tuple(homes.items())


def format_homes(homes: Homes) -> str:
    """Return homes in the form that `parse_homes` reads."""
    return ",".join(f"{name}={count}" for name, count in homes)


def assign_homes(agent_count: int, proxy_count: int, homes: Homes = ()) -> Iterator[int]:
    """Yield the home of each agent as a proxy's index: in turn, while a proxy has room. Raises HomesError."""
    capacities = _capacities_of(agent_count, proxy_count, homes)
    while any(capacities):
        for proxy in range(proxy_count):
            if capacities[proxy]:
                capacities[proxy] -= 1
                yield proxy


def _capacities_of(agent_count: int, proxy_count: int, homes: Homes) -> list[int]:
    agent_counts = dict(homes)
    names = [f"proxy-{index + 1}" for index in range(proxy_count)]
    for name in agent_counts:
        if name not in names:
            raise HomesError(f"{name} does not exist: the proxies are proxy-1 to proxy-{proxy_count}")
    remaining, unnamed_proxies = (
        agent_count - sum(agent_counts.values()),
        [name for name in names if name not in agent_counts],
    )
    if remaining < 0 or (remaining and not unnamed_proxies):
        raise HomesError(
            f"the home proxies have {sum(agent_counts.values())} agents in total, but the fleet has {agent_count}"
        )
    share, remainder = divmod(remaining, len(unnamed_proxies)) if unnamed_proxies else (0, 0)
    agent_counts |= {name: share + (position < remainder) for position, name in enumerate(unnamed_proxies)}
    return [agent_counts[name] for name in names]


HOMES = ParsedOption("proxy=agents[,...]", parse_homes)
