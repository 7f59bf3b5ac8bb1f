from __future__ import annotations

import pytest
from redis import Redis

from fleet.monitoring.state import StateUnavailableError
from fleet.monitoring.state.missing_capabilities import (
    MissingCapabilityStore,
    pack_missing,
    unpack_missing,
)
from fleet.monitoring.state.reader import Reader, open_reader
from fleet.vocabulary.capabilities import Capability

_MISSING = {Capability.POLICIES: "It has no policies.", Capability.AGENT_TO_AUTH: "Its role lacks list."}


def test_what_is_written_is_read_until_it_is_not_missing(redis: Redis, prefix: str) -> None:
    """Of one cluster only."""
    store = MissingCapabilityStore(redis, prefix)
    assert store.read("a") == {}
    store.write("a", _MISSING)
    assert (store.read("a"), store.read("b")) == (_MISSING, {})
    assert Reader(redis, prefix).missing_capabilities("a") == _MISSING
    store.write("a", {})
    assert store.read("a") == {}


def test_unchanged_capabilities_are_not_written_again(redis: Redis, prefix: str) -> None:
    """The key keeps what only a write would remove."""
    store = MissingCapabilityStore(redis, prefix)
    store.write("a", _MISSING)
    key = f"{prefix}:a:missing-capabilities"
    redis.expire(key, 1000)
    store.write("a", dict(reversed(_MISSING.items())))
    assert redis.ttl(key) > 0


def test_long_reasons_are_cut_and_unknown_slugs_left_out() -> None:
    blob = pack_missing({Capability.WATCH: "x" * 5000})
    assert unpack_missing(blob) == {Capability.WATCH: "x" * 500}
    assert unpack_missing(b'{"of-a-newer-version":"x"}') == {}


def test_redis_down() -> None:
    with pytest.raises(StateUnavailableError):
        open_reader("redis://127.0.0.1:1/0", "x").missing_capabilities("a")
