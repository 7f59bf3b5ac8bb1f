from __future__ import annotations

from fleet.nodes.proxy.connect.pending_connections import PendingConnections


def test_nobody_leaves_while_there_is_room() -> None:
    """As many as there may be; who was let in, or went, leaves a place."""
    strangers: PendingConnections[str] = PendingConnections()
    assert [strangers.add(name, "a", 2) for name in ("one", "two")] == [None, None]
    strangers.remove("one")
    strangers.remove("one")
    assert strangers.add("three", "a", 2) is None
    assert len(strangers) == 2


def test_the_oldest_makes_room() -> None:
    """The newest is the likeliest user: it asks at once."""
    strangers: PendingConnections[str] = PendingConnections()
    for name in ("one", "two"):
        strangers.add(name, "a", 2)
    assert [strangers.add(name, "a", 2) for name in ("three", "four")] == ["one", "two"]


def test_the_busiest_address_makes_room() -> None:
    """A thousand connections from one address shut no other address out, however old its own are."""
    strangers: PendingConnections[str] = PendingConnections()
    strangers.add("user", "b", 4)
    for number in range(3):
        strangers.add(f"idle-{number}", "a", 4)
    assert [strangers.add(f"more-{number}", "a", 4) for number in range(3)] == ["idle-0", "idle-1", "idle-2"]
    assert strangers.add("another user", "c", 4) == "more-0"
