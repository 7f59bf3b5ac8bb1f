"""What a connection bears of a peer that makes it work for nothing."""

from __future__ import annotations

import pytest

from fleet.transport.http2 import floods
from fleet.transport.http2.floods import Resets
from fleet.transport.http2.frames import Code, ConnectionBroken


def test_resets_at_once_and_over_time() -> None:
    """A thousand at once, and two hundred more for each second that passes; never more than a thousand saved up."""
    now = [0.0]
    resets = Resets(lambda: now[0])
    for _ in range(1_000):
        resets.count()
    with pytest.raises(ConnectionBroken) as caught:
        resets.count()
    assert caught.value.code is Code.ENHANCE_YOUR_CALM
    resets = Resets(lambda: now[0])
    for seconds in (3600.0, 3605.0):
        now[0] = seconds
        for _ in range(1_000):
            resets.count()
    with pytest.raises(ConnectionBroken):
        resets.count()


@pytest.mark.parametrize(("size", "frames"), [(1 << 30, 0), (0, 1 << 20)])
def test_peer_that_does_not_read(size: int, frames: int) -> None:
    """Bytes it does not take, or frames it has us write at once, are bounded."""
    floods.must_read(0, 0)
    with pytest.raises(ConnectionBroken):
        floods.must_read(size, frames)
