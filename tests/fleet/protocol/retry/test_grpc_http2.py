"""gRPC statuses, deadlines and messages in HTTP/2."""

from __future__ import annotations

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.retry import grpc_http2
from fleet.protocol.retry.grpc_http2 import MessageCounter, Status


def test_statuses_match_grpc() -> None:
    """Names and numbers are equal."""
    assert {status.name: status.value for status in Status} == {
        code.name: code.value[0] for code in grpc.StatusCode
    }


@pytest.mark.parametrize(("text", "status"), [(b"14", Status.UNAVAILABLE), (b"17", Status.UNKNOWN)])
def test_read_status(text: bytes, status: Status) -> None:
    """Unknown numbers and texts give UNKNOWN."""
    assert Status.read(text) is status
    assert Status.read(b"-1") is Status.UNKNOWN
    assert Status.read(b"") is Status.UNKNOWN


@pytest.mark.parametrize(
    ("text", "seconds"), [(b"1S", 1.0), (b"250m", 0.25), (b"99999999H", 99999999 * 3600.0), (b"2u", 2e-6)]
)
def test_read_timeout(text: bytes, seconds: float) -> None:
    """A timeout has up to eight digits and a unit."""
    assert grpc_http2.read_timeout(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"1", b"S", b"1.5S", b"-1S", b"123456789S", b"1S\n", b"1h"])
def test_invalid_timeout_is_none(text: bytes) -> None:
    assert grpc_http2.read_timeout(text) is None


@given(st.floats(0, 99_999 * 3600.0))
def test_written_timeout_is_never_shorter(seconds: float) -> None:
    """Timeouts are rounded up, by at most 1 %."""
    timeout = grpc_http2.read_timeout(grpc_http2.write_timeout(seconds))

    assert timeout is not None
    assert seconds - 1e-6 <= timeout <= seconds * 1.01 + 1e-5


@given(st.text())
def test_status_message_round_trips(text: str) -> None:
    """Percent-encoding keeps every character."""
    text = text.encode(errors="replace").decode()
    encoded = grpc_http2.write_message(text)

    assert grpc_http2.read_message(encoded) == text
    assert encoded.isascii()


@given(st.lists(st.binary(max_size=20), max_size=6), st.integers(1, 7))
def test_messages_are_counted_for_any_chunk_size(messages: list[bytes], chunk_size: int) -> None:
    """Complete messages count; the longest is known from its prefix."""
    body = b"".join(b"\0" + len(message).to_bytes(4) + message for message in messages)
    counter = MessageCounter()

    longest = [counter.feed(body[at : at + chunk_size]) for at in range(0, len(body), chunk_size)]

    assert counter.message_count == len(messages)
    assert counter.is_between_messages
    assert max(longest, default=0) == max(map(len, messages), default=0)
    assert counter.has_bytes is bool(messages)
    assert counter.has_several is (len(messages) > 1)


def test_first_byte_of_a_second_message_counts() -> None:
    """One byte is enough to detect a stream."""
    counter = MessageCounter()
    counter.feed(b"\0\0\0\0\1a")
    assert not counter.has_several
    counter.feed(b"\0")
    assert counter.has_several


def test_incomplete_message_does_not_count() -> None:
    counter = MessageCounter()
    counter.feed(b"\0\0\0\0\5ab")

    assert counter.message_count == 0
    assert not counter.is_between_messages


def test_http_statuses_and_resets_become_grpc_statuses() -> None:
    assert grpc_http2.of_http(503) is Status.UNAVAILABLE
    assert grpc_http2.of_http(418) is Status.UNKNOWN
    assert grpc_http2.of_reset(8) is Status.CANCELLED
    assert grpc_http2.of_reset(2) is Status.INTERNAL
