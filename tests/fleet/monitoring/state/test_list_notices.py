from __future__ import annotations

import pytest
from redis import Redis

from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.list_notices import ListNoticeStore
from fleet.monitoring.state.reader import Reader


def test_notice_is_read_until_it_is_removed(redis: Redis, prefix: str) -> None:
    """Of one cluster only; a long one is cut."""
    store = ListNoticeStore(redis, prefix)
    assert store.read("a") == ""
    store.write("a", "Zürich: the lists may be old.")
    assert (store.read("a"), store.read("b")) == ("Zürich: the lists may be old.", "")
    assert Reader(redis, prefix).list_notice("a") == "Zürich: the lists may be old."
    store.write("a", "x" * 501)
    assert store.read("a") == "x" * 500
    store.write("a", "")
    assert store.read("a") == ""
    assert not redis.exists(f"{prefix}:a:list-notice")


def test_unchanged_notice_is_not_written_again(redis: Redis, prefix: str) -> None:
    """The key keeps what only a write would remove."""
    store = ListNoticeStore(redis, prefix)
    for _ in range(2):
        store.write("a", "x" * 501)
        redis.expire(f"{prefix}:a:list-notice", 1000)
    store.write("a", "x" * 501)
    assert redis.ttl(f"{prefix}:a:list-notice") > 0


def test_unreachable_redis_is_an_error(prefix: str) -> None:
    store = ListNoticeStore(Redis(port=1), prefix)
    with pytest.raises(StateUnavailableError):
        store.read("a")
    with pytest.raises(StateUnavailableError):
        store.write("a", "x")
