"""On which proxies invented agents have their homes: evenly, or as an operator says. docs/simulate.md."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.nodes.shared.options import Parsed

#: Agents by a proxy's name; proxies that are not named share the rest evenly.
Homes = tuple[tuple[str, int], ...]


class HomesError(ValueError):
    """What cannot be dealt, in a sentence."""


def parse(text: str) -> Homes:
    """Read `proxy-14=207,proxy-3=10`. Raises HomesError."""
    homes: dict[str, int] = {}
    for part in text.split(","):
        name, _, count = part.strip().partition("=")
        if not (name and count.isascii() and count.isdigit()):
            raise HomesError(f"{part.strip()!r} is not PROXY=AGENTS")
        if name in homes:
            raise HomesError(f"{name} is named twice")
        homes[name] = int(count)
    return tuple(homes.items())


def written(homes: Homes) -> str:
    """What `parse` reads."""
    return ",".join(f"{name}={count}" for name, count in homes)


def deal(agents: int, proxies: int, homes: Homes = ()) -> Iterator[int]:
    """The home of each agent as a proxy's index: in turn, as long as a proxy has room. Raises HomesError."""
    room = _room(agents, proxies, homes)
    while any(room):
        for proxy in range(proxies):
            if room[proxy]:
                room[proxy] -= 1
                yield proxy


def _room(agents: int, proxies: int, homes: Homes) -> list[int]:
    asked = dict(homes)
    names = [f"proxy-{index + 1}" for index in range(proxies)]
    for name in asked:
        if name not in names:
            raise HomesError(f"no proxy {name}: there are proxy-1 to proxy-{proxies}")
    left, others = agents - sum(asked.values()), [name for name in names if name not in asked]
    if left < 0 or (left and not others):
        raise HomesError(f"{sum(asked.values())} agents have homes, and there are {agents}")
    each, more = divmod(left, len(others)) if others else (0, 0)
    asked |= {name: each + (place < more) for place, name in enumerate(others)}
    return [asked[name] for name in names]


HOMES = Parsed("proxy=agents[,...]", parse)
