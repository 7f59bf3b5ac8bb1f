"""Lists and feeds, page by page: all pages there are, within the seconds that are left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from fleet.monitoring.sources import SourceFailed, asking
from fleet.monitoring.sources.source import Question

Entry = TypeVar("Entry")
PageT = TypeVar("PageT")
FeedPageT = TypeVar("FeedPageT", bound="FeedPage")
#: Seconds a call gets at least: gRPC takes none, and less than none, for an error of ours.
_LEAST = 0.001


async def pages(
    ask: Callable[[PageT | None, float], Awaitable[PageT]],
    has_next: Callable[[PageT], object],
    left: Callable[[], float],
) -> AsyncIterator[PageT]:
    """Ask for page after page; `ask` is given the page before, and the seconds it may take.

    The first page is asked for in any case. Raises SourceFailed when a page fails, or time is up before the last one.
    """
    page: PageT | None = None
    while page is None or has_next(page):
        seconds = left()
        if seconds <= 0 and page is not None:
            raise SourceFailed("no time is left for the next page", answered=True)
        with asking():
            page = await ask(page, max(seconds, _LEAST))
        yield page


class FeedPage(Protocol):
    """What every page of a feed says of itself."""

    epoch: str
    revision: int
    #: A full list begins with it.
    full: bool
    more: bool


@dataclass(slots=True)
class Changes(Generic[Entry]):
    """What changed since a revision of an epoch. `complete` is False when there is more than the time allowed."""

    epoch: str
    revision: int
    #: A full list began: forget what you had.
    full: bool = False
    complete: bool = False
    #: agent id -> its entry, or None when it has none any more.
    agents: dict[str, Entry | None] = field(default_factory=dict)

    def turn(self, page: FeedPage) -> None:
        """Go on to a page, before its entries are added."""
        if page.full:
            self.full = True
            self.agents.clear()
        self.epoch, self.revision, self.complete = page.epoch, page.revision, not page.more


async def ask_changes(
    question: Question,
    call: Callable[..., Awaitable[FeedPageT]],
    request: Callable[..., object],
    entries: Callable[[FeedPageT, float], Iterable[tuple[str, Entry | None]]],
) -> Changes[Entry]:
    """Ask a feed for what changed since our place in it; `entries` reads those of a page that came at a moment.

    Pages that came are kept when a later one fails. Raises SourceFailed when not even the first one came.
    """
    changes: Changes[Entry] = Changes(question.target.epoch, question.target.revision)

    def ask(_: FeedPageT | None, seconds: float) -> Awaitable[FeedPageT]:
        return call(request(epoch=changes.epoch, since_revision=changes.revision), timeout=seconds)

    page: FeedPageT | None = None
    try:
        async for page in pages(ask, attrgetter("more"), question.left):
            changes.turn(page)
            changes.agents.update(entries(page, question.clock()))
    except SourceFailed:
        if page is None:
            raise
    return changes
