from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from fleet.monitoring.sources import SourceError
from fleet.monitoring.sources.changes import FeedChanges, read_changes
from fleet.monitoring.sources.source import PollTarget, SourceContext
from fleet.transport.poll_connections import Connections
from fleet.vocabulary.instances import InstanceKind


@dataclass
class Told:
    """A page of a feed that tells names only."""

    revision: int
    names: dict[str, str] = field(default_factory=dict)
    full: bool = False
    more: bool = False
    epoch: str = "e"


class Feed:
    """Answers with its pages in turn; one that is an error fails."""

    def __init__(self, *pages: Told | SourceError) -> None:
        self._pages = iter(pages)
        self.seconds: list[float] = []
        self.revisions: list[int] = []

    def request(self, *, epoch: str, since_revision: int) -> int:
        """Return what the page is asked by."""
        assert epoch == "e"
        return since_revision

    async def call(self, revision: int, *, timeout: float) -> Told:  # noqa: ASYNC109 - as gRPC has it
        """Answer with the next page."""
        self.revisions.append(revision)
        self.seconds.append(timeout)
        page = next(self._pages)
        if isinstance(page, SourceError):
            raise page
        return page


async def followed(feed: Feed, left: Iterable[float]) -> FeedChanges[str]:
    """Ask a feed for what changed since revision 1."""
    seconds = iter(left)
    target = PollTarget(0, InstanceKind.PROXY, "127.0.0.1:1", epoch="e", revision=1)
    connections = Connections()
    channel = connections.channel(target.address, target.kind)
    question = SourceContext(target, channel, connections, lambda: next(seconds), lambda: 100.0)
    changes = await read_changes(question, feed.call, feed.request, lambda page, _: page.names.items())
    await connections.close()
    return changes


async def test_pages_to_the_last() -> None:
    """The entries of all, and the place of the last; a full list that begins drops what came before it."""
    feed = Feed(
        Told(2, {"a": "old"}, more=True), Told(3, {"b": "new"}, full=True, more=True), Told(4, {"c": "new"})
    )
    changes = await followed(feed, [5.0, 4.0, 3.0])
    assert (changes.agents, changes.revision) == ({"b": "new", "c": "new"}, 4)
    assert (changes.full, changes.complete) == (True, True)
    assert (feed.revisions, feed.seconds) == ([1, 2, 3], [5.0, 4.0, 3.0])


@pytest.mark.parametrize("names", [{"a": "one"}, {}])
async def test_pages_when_time_is_up(names: dict[str, str]) -> None:
    """What came is kept, also a place that moved on without an entry."""
    changes = await followed(Feed(Told(2, names, more=True)), [5.0, 0.0])
    assert (changes.agents, changes.revision, changes.complete) == (names, 2, False)


async def test_later_page_that_fails() -> None:
    """What came before it is kept."""
    changes = await followed(Feed(Told(2, more=True), SourceError("gone", has_response=False)), [5.0, 4.0])
    assert (changes.revision, changes.complete) == (2, False)


async def test_first_page_that_fails() -> None:
    """Nothing is known then; without time left it was asked all the same, briefly."""
    feed = Feed(SourceError("gone", has_response=False))
    with pytest.raises(SourceError, match="gone"):
        await followed(feed, [-1.0])
    assert feed.seconds == [0.001]
