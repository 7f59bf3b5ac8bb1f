"""Revision feed: lists that are read by revision."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.recovery.feed import FeedPage, RevisionFeed


def apply_page(entries: dict[str, str], page: FeedPage[tuple[str, str]]) -> None:
    if page.full:
        entries.clear()
    for key in page.removed_keys:
        entries.pop(key, None)
    entries.update(dict(page.updates))


def read_all(
    feed: RevisionFeed[tuple[str, str]], entries: dict[str, str], position: tuple[str, int], limit: int
) -> tuple[str, int]:
    """Read pages from `place` until there are no more."""
    while True:
        page = feed.since(*position, limit)
        apply_page(entries, page)
        position = (page.epoch, page.revision)
        if not page.more:
            return position


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcdef")),
        st.tuples(st.just("remove"), st.sampled_from("abcdef")),
        st.tuples(st.just("read"), st.just("")),
        st.tuples(st.just("page"), st.just("")),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 4), st.integers(1, 5))
def test_law_applied_pages_equal_the_list(steps: list[tuple[str, str]], limit: int, tombstones: int) -> None:
    """For any changes, page sizes and tombstone limits the applied pages give the list."""
    feed: RevisionFeed[tuple[str, str]] = RevisionFeed("e", tombstones=tombstones)
    expected: dict[str, str] = {}
    entries: dict[str, str] = {}
    position = ("", 0)
    for number, (step, key) in enumerate(steps):
        if step == "put":
            feed.put(key, (key, str(number)))
            expected[key] = str(number)
        elif step == "remove":
            feed.remove(key)
            expected.pop(key, None)
        elif step == "page":
            page = feed.since(*position, limit)
            apply_page(entries, page)
            position = (page.epoch, page.revision)
        else:
            position = read_all(feed, entries, position, limit)
            assert entries == expected
    read_all(feed, entries, position, limit)
    assert entries == expected


def test_since_the_current_revision_is_empty() -> None:
    """The page is not a full one."""
    feed: RevisionFeed[str] = RevisionFeed("e")
    feed.put("a", "1")
    assert feed.since("e", 1, 10) == FeedPage("e", 1, full=False, more=False, updates=(), removed_keys=())


def test_since_another_epoch_is_full() -> None:
    """A future revision gives the full list, too."""
    feed: RevisionFeed[str] = RevisionFeed("e")
    feed.put("a", "1")
    for position in (("other", 1), ("e", 7)):
        page = feed.since(*position, 10)
        assert (page.full, page.updates, page.revision) == (True, ("1",), 1)


def test_since_an_expired_tombstone_is_full() -> None:
    """A reader that missed more removals than are kept gets the full list."""
    feed: RevisionFeed[str] = RevisionFeed("e", tombstones=1)
    for key in "abc":
        feed.put(key, key)
    for key in "ab":
        feed.remove(key)
    assert feed.since("e", 4, 10).removed_keys == ("b",)
    assert feed.since("e", 3, 10).full
