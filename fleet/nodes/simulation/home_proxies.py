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


def parse(text: str) -> Homes:
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
    """Return homes in the form that `parse` reads."""
    return ",".join(f"{name}={count}" for name, count in homes)


def assign_homes(agents: int, proxies: int, homes: Homes = ()) -> Iterator[int]:
    """Yield the home of each agent as a proxy's index: in turn, while a proxy has room. Raises HomesError."""
    capacity = _capacity_of(agents, proxies, homes)
    while any(capacity):
        for proxy in range(proxies):
            if capacity[proxy]:
                capacity[proxy] -= 1
                yield proxy


def _capacity_of(agents: int, proxies: int, homes: Homes) -> list[int]:
    agents_by_proxy = dict(homes)
    names = [f"proxy-{index + 1}" for index in range(proxies)]
    for name in agents_by_proxy:
        if name not in names:
            raise HomesError(f"{name} does not exist: the proxies are proxy-1 to proxy-{proxies}")
    remaining, unnamed_proxies = (
        agents - sum(agents_by_proxy.values()),
        [name for name in names if name not in agents_by_proxy],
    )
    if remaining < 0 or (remaining and not unnamed_proxies):
        raise HomesError(
            f"the home proxies have {sum(agents_by_proxy.values())} agents in total, but the fleet has {agents}"
        )
    share, remainder = divmod(remaining, len(unnamed_proxies)) if unnamed_proxies else (0, 0)
    agents_by_proxy |= {name: share + (place < remainder) for place, name in enumerate(unnamed_proxies)}
    return [agents_by_proxy[name] for name in names]


HOMES = ParsedOption("proxy=agents[,...]", parse)
