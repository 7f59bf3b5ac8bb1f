"""What waits for an end that does not read is bounded, by messages and by bytes."""

from __future__ import annotations

from fleet.transport.tunnel.outgoing_queue import OutgoingQueue


async def test_messages_come_in_order_until_the_end() -> None:
    """The end comes last."""
    outgoing = OutgoingQueue()
    assert outgoing.put(b"a")
    assert outgoing.put(b"")
    outgoing.end()
    assert [await outgoing.get() for _ in range(3)] == [b"a", b"", None]


async def test_messages_that_wait_are_bounded() -> None:
    """One that is read makes room for another."""
    outgoing = OutgoingQueue(most_messages=2)
    assert [outgoing.put(b"a") for _ in range(3)] == [True, True, False]
    await outgoing.get()
    assert [outgoing.put(b"a") for _ in range(2)] == [True, False]


async def test_bytes_that_wait_are_bounded() -> None:
    """A message that is refused leaves the room that there was."""
    outgoing = OutgoingQueue(most_bytes=10)
    assert [outgoing.put(b"x" * size) for size in (8, 3, 2, 1)] == [True, False, True, False]
    await outgoing.get()
    assert [outgoing.put(b"x" * size) for size in (9, 8)] == [False, True]
