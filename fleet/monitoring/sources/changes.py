"""Lists and feeds, page by page: all pages there are, within the seconds that are left."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from fleet.monitoring.sources import SourceError, map_source_errors
from fleet.monitoring.sources.source import SourceContext

Entry = TypeVar("Entry")
PageT = TypeVar("PageT")
FeedPageT = TypeVar("FeedPageT", bound="FeedPageHeader")
#: Seconds a call gets at least: gRPC takes none, and less than none, for an error of ours.
_MIN_TIMEOUT = 0.001


async def pages(
    read_page: Callable[[PageT | None, float], Awaitable[PageT]],
    has_next: Callable[[PageT], object],
    remaining_seconds: Callable[[], float],
) -> AsyncIterator[PageT]:
    """Ask for page after page; `ask` is given the page before, and the seconds it may take.

    The first page is asked for in any case. Raises SourceError when a page fails, or time is up before the last one.
    """
    page: PageT | None = None
    while page is None or has_next(page):
        timeout = remaining_seconds()
        if timeout <= 0 and page is not None:
            raise SourceError("no time is left for the next page", has_response=True)
        with map_source_errors():
            page = await read_page(page, max(timeout, _MIN_TIMEOUT))
        yield page


class FeedPageHeader(Protocol):
    """What every page of a feed says of itself."""

    epoch: str
    revision: int
    #: A full list begins with it.
    full: bool
    more: bool


@dataclass(slots=True)
class FeedChanges(Generic[Entry]):
    """What changed since a revision of an epoch. `complete` is False when there is more than the time allowed."""

    epoch: str
    revision: int
    #: A full list began: forget what you had.
    full: bool = False
    complete: bool = False
    #: agent id -> its entry, or None when it has none any more.
    agents: dict[str, Entry | None] = field(default_factory=dict)

    def start_page(self, page: FeedPageHeader) -> None:
        """Go on to a page, before its entries are added."""
        if page.full:
            self.full = True
            self.agents.clear()
        self.epoch, self.revision, self.complete = page.epoch, page.revision, not page.more


async def read_changes(
    context: SourceContext,
    call: Callable[..., Awaitable[FeedPageT]],
    request: Callable[..., object],
    entries: Callable[[FeedPageT, float], Iterable[tuple[str, Entry | None]]],
) -> FeedChanges[Entry]:
    """Ask a feed for what changed since our place in it; `entries` reads those of a page that came at a moment.

    Pages that came are kept when a later one fails. Raises SourceError when not even the first one came.
    """
    changes: FeedChanges[Entry] = FeedChanges(context.target.epoch, context.target.revision)

    def read_page(_: FeedPageT | None, seconds: float) -> Awaitable[FeedPageT]:
        return call(request(epoch=changes.epoch, since_revision=changes.revision), timeout=seconds)

    page: FeedPageT | None = None
    try:
        async for page in pages(read_page, attrgetter("more"), context.remaining_seconds):
            changes.start_page(page)
            changes.agents.update(entries(page, context.clock()))
    except SourceError:
        if page is None:
            raise
    return changes
