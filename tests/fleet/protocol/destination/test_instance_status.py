from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.destination.instance_status import (
    EMPTY_STATUS,
    LONGEST_REASON,
    InstanceStatus,
    from_headers,
    is_valid_reason,
    merge_reports,
    to_headers,
)


def test_empty_status_has_no_headers() -> None:
    """A healthy instance sends no additional header."""
    assert to_headers(EMPTY_STATUS) == []
    assert from_headers([("content-type", "application/json")]) == EMPTY_STATUS


def test_degraded_header_counts_without_a_value() -> None:
    """Envoy ignores the value; names may have any case, and metadata may be bytes."""
    assert from_headers([("X-Envoy-Degraded", "")]) == InstanceStatus(degraded_reason="")
    assert from_headers([("x-envoy-degraded", b"disk\n\x00full")]) == InstanceStatus(
        degraded_reason="diskfull"
    )


@given(st.text(max_size=300), st.one_of(st.none(), st.text(max_size=300)))
def test_status_round_trips_through_headers(degraded_reason: str, draining_reason: str | None) -> None:
    """ASCII reasons survive; other reasons become values that HTTP and gRPC can carry."""
    pairs = to_headers(InstanceStatus(degraded_reason, draining_reason))
    assert all(value.isascii() and value and len(value) <= LONGEST_REASON for _, value in pairs)
    status = from_headers(pairs)
    assert status.degraded_reason is not None
    assert (status.draining_reason is None) == (draining_reason is None)
    if degraded_reason and degraded_reason.isascii() and is_valid_reason(degraded_reason):
        assert status.degraded_reason == degraded_reason


def test_reason_is_short_and_printable() -> None:
    """Reasons are logged, and shown on pages."""
    assert is_valid_reason("")
    assert is_valid_reason("kernel update")
    assert not is_valid_reason("a\nb")
    assert not is_valid_reason("x" * (LONGEST_REASON + 1))


def test_merge_reports_of_an_instance() -> None:
    """The first reason of each kind counts; without reports there is no status."""
    assert merge_reports([]) is None
    assert merge_reports([InstanceStatus()]) == InstanceStatus()
    assert merge_reports(
        [InstanceStatus(draining_reason="update"), InstanceStatus("busy", "later")]
    ) == InstanceStatus("busy", "update")
