"""Lists read by revision."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.recovery.feed import FeedPage, RevisionFeed


def apply(known: dict[str, str], page: FeedPage[tuple[str, str]]) -> None:
    if page.full:
        known.clear()
    for key in page.removed_keys:
        known.pop(key, None)
    known.update(dict(page.updates))


def read_on(
    feed: RevisionFeed[tuple[str, str]], known: dict[str, str], place: tuple[str, int], limit: int
) -> tuple[str, int]:
    """Ask from `place` until there is no more."""
    while True:
        page = feed.since(*place, limit)
        apply(known, page)
        place = (page.epoch, page.revision)
        if not page.more:
            return place


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
def test_law_answers_applied_are_the_list(steps: list[tuple[str, str]], limit: int, tombstones: int) -> None:
    """Whatever happened in between, however small the pages and the memory: applied answers are the list."""
    feed: RevisionFeed[tuple[str, str]] = RevisionFeed("e", tombstones=tombstones)
    truth: dict[str, str] = {}
    known: dict[str, str] = {}
    place = ("", 0)
    for number, (step, key) in enumerate(steps):
        if step == "put":
            feed.put(key, (key, str(number)))
            truth[key] = str(number)
        elif step == "remove":
            feed.remove(key)
            truth.pop(key, None)
        elif step == "page":
            page = feed.since(*place, limit)
            apply(known, page)
            place = (page.epoch, page.revision)
        else:
            place = read_on(feed, known, place, limit)
            assert known == truth
    read_on(feed, known, place, limit)
    assert known == truth


def test_since_nothing_changed() -> None:
    """An answer to somebody who knows all is empty and not full."""
    feed: RevisionFeed[str] = RevisionFeed("e")
    feed.put("a", "1")
    assert feed.since("e", 1, 10) == FeedPage("e", 1, full=False, more=False, updates=(), removed_keys=())


def test_since_another_epoch() -> None:
    """A foreign epoch, or a revision of the future, gets the full list."""
    feed: RevisionFeed[str] = RevisionFeed("e")
    feed.put("a", "1")
    for place in (("other", 1), ("e", 7)):
        page = feed.since(*place, 10)
        assert (page.full, page.updates, page.revision) == (True, ("1",), 1)


def test_since_forgotten_removals() -> None:
    """Who missed more removals than are remembered gets the full list."""
    feed: RevisionFeed[str] = RevisionFeed("e", tombstones=1)
    for key in "abc":
        feed.put(key, key)
    for key in "ab":
        feed.remove(key)
    assert feed.since("e", 4, 10).removed_keys == ("b",)
    assert feed.since("e", 3, 10).full
