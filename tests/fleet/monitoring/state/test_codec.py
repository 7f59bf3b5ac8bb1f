from __future__ import annotations

import numpy as np

from fleet.monitoring.columns import HEARTBEAT, NO_INSTANCE, TUNNEL
from fleet.monitoring.evidence import FeedFreshness
from fleet.monitoring.state import codec
from fleet.protocol.destination.health import Health
from fleet.vocabulary.instances import InstanceResource, InstanceState, Poll, PollAttempt, ServingStatus
from fleet.vocabulary.verdicts import State


def test_header_round_trip() -> None:
    """Every field is restored; invalid bytes are no header."""
    header = codec.RecordHeader("0123456789abcdef", 5, 7, 9, 1.5, 0.6, 3, 2, tuple(range(len(State))))
    blob = codec.pack_header(header)
    assert len(blob) == codec.HEADER_SIZE
    assert codec.unpack_header(blob + b"rows") == header
    assert codec.unpack_header(blob[:-1]) is None
    assert codec.unpack_header(b"\0" * codec.HEADER_SIZE) is None


def test_rows_are_truncated_or_filled() -> None:
    """Missing rows name no instance."""
    blob = np.zeros(2, HEARTBEAT).tobytes()
    assert len(codec.rows_of(blob, HEARTBEAT, 1)) == 1
    assert codec.rows_of(blob, HEARTBEAT, 3)["auth"].tolist() == [0, 0, NO_INSTANCE]
    assert codec.rows_of(None, HEARTBEAT, 1)["auth"].tolist() == [NO_INSTANCE]


def test_tunnels_of_several_proxies() -> None:
    """Parallel arrays in the order of the proxies, whatever the order of the hash."""
    rows = np.array([(4, 0), (5, 0)], TUNNEL)
    agents, proxies = codec.tunnels_of({9: rows.tobytes(), 7: b"", 3: rows[:1].tobytes()})
    assert agents.tolist() == [4, 4, 5]
    assert proxies.tolist() == [3, 9, 9]


def test_small_values_round_trip() -> None:
    """Resources, polls, spells and feeds, complete and empty."""
    for resource in (
        InstanceResource("n", "h:1", "h:2", "1", 10.0, 2.5, 3.5, "g", 4),
        InstanceResource("n", ""),
        InstanceResource("n", "h:1", expires_at=0.0),
    ):
        unpacked_resource = codec.unpack_resource(codec.pack_resource(resource).encode())
        assert unpacked_resource.address == resource.address
        assert (unpacked_resource.expires_at or None) == (resource.expires_at or None)
    attempts = (PollAttempt(2.0, ok=False, error="no"), PollAttempt(1.0, ok=True))
    full = Poll(attempts=attempts, serving=ServingStatus.UNKNOWN, serving_at=1.0, readyz=503, readyz_at=2.0)
    with_counts = Poll(connection_counts=(("app", 1), ("node", 2)), missing_tunnel_count=0, counted_at=1.0)
    for poll in (Poll(), full, with_counts):
        assert Poll(**codec.unpack_poll(codec.pack_poll(poll).encode())) == poll
    for spell in (
        codec.InstanceSpell(),
        codec.InstanceSpell(InstanceState.SILENT, 1234.5),
        codec.InstanceSpell(InstanceState.OK, None, Health.DEGRADED, True),
        codec.InstanceSpell(InstanceState.UNHEALTHY, 1.5, Health.HEALTHY, False, '{"errors":["a b"]}'),
    ):
        assert codec.unpack_spell(codec.pack_spell(spell).encode()) == spell
    for state in (
        codec.FeedState(),
        codec.FeedState(FeedFreshness(2.0, 1.0), "e", 7, is_listing=True, parity=1, last_auth=0),
    ):
        assert codec.unpack_feed(codec.pack_feed(state).encode()) == state
    assert codec.unpack_feed(None) == codec.FeedState()


def test_poll_of_another_version() -> None:
    """Unknown and missing sources do not affect the others."""
    assert codec.unpack_poll(b'{"attempts":[[1.0,1,""]],"readyz":503,"another":"1"}') == {
        "attempts": (PollAttempt(1.0, ok=True),),
        "readyz": 503,
    }
