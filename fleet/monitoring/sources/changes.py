"""What changed since a revision of an epoch, page by page: how the feeds of agents and of tunnels are asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from fleet.monitoring.sources import SourceFailed, asking

Entry = TypeVar("Entry")
PageT = TypeVar("PageT", bound="Page")
#: Seconds a call gets at least: gRPC takes none, and less than none, for an error of ours.
_LEAST = 0.001


class Page(Protocol):
    """What every answer of such a feed says of itself."""

    epoch: str
    revision: int
    #: A full list begins with it.
    full: bool
    more: bool


@dataclass(slots=True)
class Changes(Generic[Entry]):
    """What a feed said. `complete` is False when there is more than the time allowed."""

    epoch: str
    revision: int
    #: A full list began: forget what you had.
    full: bool = False
    complete: bool = False
    #: agent id -> its entry, or None when it has none any more.
    agents: dict[str, Entry | None] = field(default_factory=dict)

    def turn(self, page: Page) -> None:
        """Go on to a page, before its entries are added."""
        if page.full:
            self.full = True
            self.agents.clear()
        self.epoch, self.revision, self.complete = page.epoch, page.revision, not page.more


async def follow(
    changes: Changes[Entry],
    ask: Callable[[float], Awaitable[PageT]],
    add: Callable[[PageT], None],
    *,
    left: Callable[[], float],
) -> None:
    """Ask for page after page while `left` says that seconds are left, and add the entries of each.

    `ask` is given the seconds it may take. Raises SourceFailed when not even the first page came.
    """
    came = False
    while not changes.complete:
        seconds = left()
        if seconds <= 0 and came:
            return
        try:
            with asking():
                page = await ask(max(seconds, _LEAST))
        except SourceFailed:
            if came:
                return
            raise
        came = True
        changes.turn(page)
        add(page)
