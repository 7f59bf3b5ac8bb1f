from __future__ import annotations

from typing import Any

import pytest

from fleet.monitoring.pollers.record_sightings import RecordHandle, note_feed_reset
from fleet.monitoring.sources.changes import LIST_EPOCH, FeedChanges
from fleet.monitoring.state.codec import FeedState
from fleet.monitoring.state.poll_log import FeedResetReason, PollLog
from fleet.monitoring.state.writer import Writer


@pytest.mark.parametrize(
    ("epoch_before", "changes", "is_written", "reason"),
    [
        ("a", FeedChanges("b", 1, full=True, agents={}), True, FeedResetReason.NEW_EPOCH),
        ("a", FeedChanges("a", 9, full=True, agents={}), True, FeedResetReason.GAP),
        ("a", FeedChanges("a", 9, full=False, agents={}), False, FeedResetReason.CONFLICT),
        # The first list, the next changes, and products without revisions.
        ("", FeedChanges("a", 1, full=True, agents={}), True, None),
        ("a", FeedChanges("a", 2, full=False, agents={}), True, None),
        (LIST_EPOCH, FeedChanges(LIST_EPOCH, 2, full=True, agents={}), True, None),
    ],
)
def test_feed_that_starts_over(
    writer: Writer,
    epoch_before: str,
    changes: FeedChanges[Any],
    is_written: bool,
    reason: FeedResetReason | None,
) -> None:
    """Each is logged with its reason; what is no reset is not."""
    handle = RecordHandle(writer, "default", "e", {}, {})
    note_feed_reset(handle, "proxy-1-id", FeedState(epoch=epoch_before), changes, 10.0, is_written=is_written)
    resets = PollLog(writer.redis, writer.prefix).read_feed_resets("default")
    assert [(reset.at, reset.feed, reset.reason) for reset in resets] == (
        [] if reason is None else [(10.0, "proxy-1-id", reason)]
    )
