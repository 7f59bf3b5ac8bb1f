from __future__ import annotations

from typing import Any

import pytest

from fleet.monitoring.pollers.record_sightings import RecordHandle, note_feed_reset
from fleet.monitoring.sources.changes import LIST_EPOCH, FeedChanges
from fleet.monitoring.state.codec import FeedState
from fleet.monitoring.state.poll_log import FeedResetReason, PollLog
from fleet.monitoring.state.writer import Writer

#: A feed after its first answer.
_FEED = FeedState(epoch="a", revision=1)


@pytest.mark.parametrize(
    ("before", "changes", "is_written", "reason"),
    [
        (_FEED, FeedChanges("b", 1, full=True, agents={}), True, FeedResetReason.NEW_EPOCH),
        (_FEED, FeedChanges("a", 9, full=True, agents={}), True, FeedResetReason.GAP),
        (_FEED, FeedChanges("a", 9, full=False, agents={}), False, FeedResetReason.CONFLICT),
        # The first list, the next changes, and products without revisions.
        (FeedState(), FeedChanges("a", 1, full=True, agents={}), True, None),
        (_FEED, FeedChanges("a", 2, full=False, agents={}), True, None),
        (
            FeedState(epoch=LIST_EPOCH, revision=1),
            FeedChanges(LIST_EPOCH, 2, full=True, agents={}),
            True,
            None,
        ),
        # A proxy that has had no tunnels since its start, and its first one.
        (FeedState(epoch="a"), FeedChanges("a", 0, full=True, agents={}), True, None),
        (FeedState(epoch="a"), FeedChanges("a", 1, full=True, agents={"x": ("x", 1.0)}), True, None),
    ],
)
def test_feed_that_starts_over(
    writer: Writer,
    before: FeedState,
    changes: FeedChanges[Any],
    is_written: bool,
    reason: FeedResetReason | None,
) -> None:
    """Each is logged with its reason; what is no reset is not."""
    handle = RecordHandle(writer, "default", "e", {}, {})
    note_feed_reset(handle, "proxy-1-id", before, changes, 10.0, is_written=is_written)
    resets = PollLog(writer.redis, writer.prefix).read_feed_resets("default")
    assert [(reset.at, reset.feed, reset.reason) for reset in resets] == (
        [] if reason is None else [(10.0, "proxy-1-id", reason)]
    )
