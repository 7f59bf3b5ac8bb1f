"""Lists and feeds in pages: all pages, within the remaining time."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from fleet.monitoring.sources import SourceError, map_source_errors, require_parsed
from fleet.monitoring.sources.source import SourceContext

Entry = TypeVar("Entry")
PageT = TypeVar("PageT")
FeedPageT = TypeVar("FeedPageT", bound="FeedPageHeader")
#: Epoch of the lists of products without revisions: each is full.
LIST_EPOCH = "list"
#: Shortest timeout of a call in seconds: gRPC rejects 0 and negative timeouts.
_MIN_TIMEOUT_SECONDS = 0.001
#: Length of a digest as a revision: JSON numbers of 53 bits are exact everywhere.
_REVISION_BYTES = 6


async def read_pages(
    read_page: Callable[[PageT | None, float], Awaitable[PageT]],
    next_key_of: Callable[[PageT], str | bool],
    remaining_seconds: Callable[[], float],
) -> AsyncIterator[PageT]:
    """Request one page after another; `read_page` gets the previous page and the seconds it may take.

    `next_key_of` returns the key of the page after one, or whether there is one. The first page is always requested.
    Raises SourceError when a page fails, when the time is too short for all, or when a key comes twice.
    """
    page: PageT | None = None
    keys: set[str] = set()
    while page is None or (key := next_key_of(page)):
        if page is not None and isinstance(key, str):
            if key in keys:
                raise SourceError("the list does not end: a page key came twice", has_response=True)
            keys.add(key)
        timeout = remaining_seconds()
        if timeout <= 0 and page is not None:
            raise SourceError("timed out before the next page", has_response=True)
        with map_source_errors():
            page = require_parsed(await read_page(page, max(timeout, _MIN_TIMEOUT_SECONDS)))
        yield page


class FeedPageHeader(Protocol):
    """Common fields of the pages of a feed."""

    epoch: str
    revision: int
    #: A full list begins with this page.
    full: bool
    more: bool


@dataclass(slots=True)
class FeedChanges(Generic[Entry]):
    """Changes since a revision of an epoch. `complete` is False when the time was too short for all."""

    epoch: str
    revision: int
    #: A full list began: drop earlier entries.
    full: bool = False
    complete: bool = False
    #: Agent id -> entry, or None when the agent was removed.
    agents: dict[str, Entry | None] = field(default_factory=dict)

    def start_page(self, page: FeedPageHeader) -> None:
        """Start a page, before its entries are added."""
        if page.full:
            self.full = True
            self.agents.clear()
        self.epoch, self.revision, self.complete = page.epoch, page.revision, not page.more


def complete_list(agents: Mapping[str, Entry], version: object) -> FeedChanges[Entry]:
    """Return the full list of a product whose API has no revisions.

    `version`: what differs if and only if the list differs, such as its sorted names. The record reads rows again only
    if the revision of their feed differs, so the revision is the digest of it.
    """
    digest = hashlib.blake2b(repr(version).encode(errors="replace"), digest_size=_REVISION_BYTES).digest()
    return FeedChanges(LIST_EPOCH, int.from_bytes(digest), full=True, complete=True, agents=dict(agents))


async def read_changes(
    context: SourceContext,
    call: Callable[..., Awaitable[FeedPageT]],
    create_request: Callable[..., object],
    read_entries: Callable[[FeedPageT, float], Iterable[tuple[str, Entry | None]]],
) -> FeedChanges[Entry]:
    """Request the changes of a feed since the last place in it; `read_entries` reads a page and its time of arrival.

    Received pages are kept when a later one fails. Raises SourceError when the first page fails.
    """
    changes: FeedChanges[Entry] = FeedChanges(context.target.feed_epoch, context.target.feed_revision)

    def read_page(_: FeedPageT | None, seconds: float) -> Awaitable[FeedPageT]:
        return call(create_request(epoch=changes.epoch, since_revision=changes.revision), timeout=seconds)

    page: FeedPageT | None = None
    try:
        async for page in read_pages(read_page, attrgetter("more"), context.remaining_seconds):
            changes.start_page(page)
            changes.agents.update(read_entries(page, context.clock()))
    except SourceError:
        if page is None:
            raise
    return changes
