"""The queue for a peer that does not read is bounded, by messages and by bytes."""

from __future__ import annotations

from fleet.transport.tunnel.outgoing_queue import OutgoingQueue


async def test_messages_keep_their_order() -> None:
    """The end comes last."""
    queue = OutgoingQueue()
    assert queue.put(b"a")
    assert queue.put(b"")
    queue.end()
    assert [await queue.get() for _ in range(3)] == [b"a", b"", None]


async def test_message_count_is_limited() -> None:
    """A message that is read makes room for another."""
    queue = OutgoingQueue(most_messages=2)
    assert [queue.put(b"a") for _ in range(3)] == [True, True, False]
    await queue.get()
    assert [queue.put(b"a") for _ in range(2)] == [True, False]


async def test_byte_count_is_limited() -> None:
    """A refused message takes no room."""
    queue = OutgoingQueue(most_bytes=10)
    assert [queue.put(b"x" * size) for size in (8, 3, 2, 1)] == [True, False, True, False]
    await queue.get()
    assert [queue.put(b"x" * size) for size in (9, 8)] == [False, True]
