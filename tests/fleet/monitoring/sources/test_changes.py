from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.changes import FeedChanges, complete_list, read_changes
from fleet.monitoring.sources.source import PollTarget, SourceContext
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind


@dataclass
class FeedPage:
    """A page of a feed of names."""

    revision: int
    names: dict[str, str] = field(default_factory=dict)
    full: bool = False
    more: bool = False
    epoch: str = "e"


class Feed:
    """A feed that returns its pages in turn, or raises them if they are errors."""

    def __init__(self, *pages: FeedPage | SourceError) -> None:
        self._pages = iter(pages)
        self.seconds: list[float] = []
        self.revisions: list[int] = []

    def request(self, *, epoch: str, since_revision: int) -> int:
        """Return the request of the next page."""
        assert epoch == "e"
        return since_revision

    async def call(self, revision: int, *, timeout: float) -> FeedPage:  # noqa: ASYNC109 - as gRPC has it
        """Return the next page."""
        self.revisions.append(revision)
        self.seconds.append(timeout)
        page = next(self._pages)
        if isinstance(page, SourceError):
            raise page
        return page


async def read_feed(feed: Feed, remaining_seconds: Iterable[float]) -> FeedChanges[str]:
    """Read the changes of a feed since revision 1."""
    seconds_iterator = iter(remaining_seconds)
    target = PollTarget(0, InstanceKind.PROXY, "127.0.0.1:1", feed_epoch="e", feed_revision=1)
    connections = Connections()
    channel = connections.channel(target.address, target.kind)
    context = SourceContext(target, channel, connections, lambda: next(seconds_iterator), lambda: 100.0)
    changes = await read_changes(context, feed.call, feed.request, lambda page, _: page.names.items())
    await connections.close()
    return changes


async def test_pages_are_read_to_the_last() -> None:
    """With the position of the last page; the start of a full list drops earlier entries."""
    feed = Feed(
        FeedPage(2, {"a": "old"}, more=True),
        FeedPage(3, {"b": "new"}, full=True, more=True),
        FeedPage(4, {"c": "new"}),
    )
    changes = await read_feed(feed, [5.0, 4.0, 3.0])
    assert (changes.agents, changes.revision) == ({"b": "new", "c": "new"}, 4)
    assert (changes.full, changes.complete) == (True, True)
    assert (feed.revisions, feed.seconds) == ([1, 2, 3], [5.0, 4.0, 3.0])


@pytest.mark.parametrize("names", [{"a": "one"}, {}])
async def test_read_pages_are_kept_when_time_runs_out(names: dict[str, str]) -> None:
    """Also a page without entries."""
    changes = await read_feed(Feed(FeedPage(2, names, more=True)), [5.0, 0.0])
    assert (changes.agents, changes.revision, changes.complete) == (names, 2, False)


async def test_error_of_a_later_page_keeps_earlier_pages() -> None:
    """The result is incomplete."""
    changes = await read_feed(
        Feed(FeedPage(2, more=True), SourceError("gone", has_response=False)), [5.0, 4.0]
    )
    assert (changes.revision, changes.complete) == (2, False)


async def test_error_of_the_first_page_is_raised() -> None:
    """Without time left the feed is queried with a minimal timeout."""
    feed = Feed(SourceError("gone", has_response=False))
    with pytest.raises(SourceError, match="gone"):
        await read_feed(feed, [-1.0])
    assert feed.seconds == [0.001]


def test_a_complete_list_has_the_revision_of_its_version() -> None:
    """The same list has the same revision, another one has another; it is exact as a JSON number."""
    first, second, longer_list = (
        complete_list(dict.fromkeys(names, 1), names) for names in ("ab", "ab", "abc")
    )
    assert (first.full, first.complete, first.agents) == (True, True, {"a": 1, "b": 1})
    assert (
        (first.epoch, first.revision)
        == (second.epoch, second.revision)
        != (longer_list.epoch, longer_list.revision)
    )
    assert float(first.revision) == first.revision
