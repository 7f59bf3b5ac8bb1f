from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.destination.instance_status import (
    EMPTY_STATUS,
    LONGEST_REASON,
    InstanceStatus,
    headers,
    is_reason,
    merge_reports,
    read,
)


def test_nothing_said_is_no_header() -> None:
    """An instance that is well sends nothing more than before."""
    assert headers(EMPTY_STATUS) == []
    assert read([("content-type", "application/json")]) == EMPTY_STATUS


def test_header_of_another_program_counts_by_being_there() -> None:
    """Envoy looks at no value; names are of any case, metadata may be bytes."""
    assert read([("X-Envoy-Degraded", "")]) == InstanceStatus(degraded_reason="")
    assert read([("x-envoy-degraded", b"disk\n\x00full")]) == InstanceStatus(degraded_reason="diskfull")


@given(st.text(max_size=300), st.one_of(st.none(), st.text(max_size=300)))
def test_what_is_written_is_read(degraded: str, draining: str | None) -> None:
    """Reasons survive if ASCII; any others leave values that HTTP and gRPC can carry."""
    written = headers(InstanceStatus(degraded, draining))
    assert all(value.isascii() and value and len(value) <= LONGEST_REASON for _, value in written)
    found = read(written)
    assert found.degraded_reason is not None
    assert (found.draining_reason is None) == (draining is None)
    if degraded and degraded.isascii() and is_reason(degraded):
        assert found.degraded_reason == degraded


def test_reason_is_short_and_printable() -> None:
    """It is logged, and shown on pages."""
    assert is_reason("")
    assert is_reason("kernel update")
    assert not is_reason("a\nb")
    assert not is_reason("x" * (LONGEST_REASON + 1))


def test_several_answers_of_an_instance() -> None:
    """The first answer that says something counts; without an answer there is nothing to join."""
    assert merge_reports([]) is None
    assert merge_reports([InstanceStatus()]) == InstanceStatus()
    assert merge_reports(
        [InstanceStatus(draining_reason="update"), InstanceStatus("busy", "later")]
    ) == InstanceStatus("busy", "update")
