from __future__ import annotations

from fleet.nodes.proxy.connect.pending_connections import PendingConnections


def test_no_connection_is_closed_below_the_limit() -> None:
    """A connection that was accepted or closed makes room."""
    pending: PendingConnections[str] = PendingConnections()
    assert [pending.add(name, "a", 2) for name in ("one", "two")] == [None, None]
    pending.remove("one")
    pending.remove("one")
    assert pending.add("three", "a", 2) is None
    assert len(pending) == 2


def test_oldest_connection_is_closed_at_the_limit() -> None:
    """The newest connection is most likely a user, who sends a request at once."""
    pending: PendingConnections[str] = PendingConnections()
    for name in ("one", "two"):
        pending.add(name, "a", 2)
    assert [pending.add(name, "a", 2) for name in ("three", "four")] == ["one", "two"]


def test_connection_of_the_busiest_address_is_closed() -> None:
    """Many connections of one address do not close those of other addresses, however old these are."""
    pending: PendingConnections[str] = PendingConnections()
    pending.add("user", "b", 4)
    for number in range(3):
        pending.add(f"idle-{number}", "a", 4)
    assert [pending.add(f"more-{number}", "a", 4) for number in range(3)] == ["idle-0", "idle-1", "idle-2"]
    assert pending.add("another user", "c", 4) == "more-0"
