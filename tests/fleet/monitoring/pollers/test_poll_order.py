from __future__ import annotations

from fleet.monitoring.pollers.poll_order import PollOrder


def test_slow_clusters_come_last_and_take_turns() -> None:
    """The one that was not polled for longest comes first among them; others keep their order."""
    order = PollOrder(deadline=2.0)
    order.note("b", began_at=100.0, ended_at=102.2)
    order.note("a", began_at=110.0, ended_at=112.2)
    order.note("c", began_at=120.0, ended_at=120.1)
    assert sorted("abcd", key=order.sort_key) == ["c", "d", "b", "a"]
    order.note("b", began_at=130.0, ended_at=132.2)
    assert sorted("abcd", key=order.sort_key) == ["c", "d", "a", "b"]
    order.note("a", began_at=140.0, ended_at=140.1)
    assert sorted("abcd", key=order.sort_key) == ["a", "c", "d", "b"]


def test_removed_cluster_is_forgotten() -> None:
    order = PollOrder(deadline=2.0)
    order.note("a", began_at=100.0, ended_at=102.2)
    order.keep_only({"b"})
    assert sorted("ab", key=order.sort_key) == ["a", "b"]
