"""gRPC's statuses, deadlines and messages in HTTP/2."""

from __future__ import annotations

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.protocol.retry import grpc_http2
from fleet.protocol.retry.grpc_http2 import Messages, Status


def test_statuses_are_those_of_grpc() -> None:
    """By name and number."""
    assert {status.name: status.value for status in Status} == {
        code.name: code.value[0] for code in grpc.StatusCode
    }


@pytest.mark.parametrize(("text", "status"), [(b"14", Status.UNAVAILABLE), (b"17", Status.UNKNOWN)])
def test_status_is_read(text: bytes, status: Status) -> None:
    """A number that is none of them is UNKNOWN."""
    assert Status.read(text) is status
    assert Status.read(b"-1") is Status.UNKNOWN
    assert Status.read(b"") is Status.UNKNOWN


@pytest.mark.parametrize(
    ("text", "seconds"), [(b"1S", 1.0), (b"250m", 0.25), (b"99999999H", 99999999 * 3600.0), (b"2u", 2e-6)]
)
def test_timeout_is_read(text: bytes, seconds: float) -> None:
    """Up to eight digits and a unit."""
    assert grpc_http2.read_timeout(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"1", b"S", b"1.5S", b"-1S", b"123456789S", b"1S\n", b"1h"])
def test_timeout_that_is_none(text: bytes) -> None:
    """Everything else is no timeout."""
    assert grpc_http2.read_timeout(text) is None


@given(st.floats(0, 99_999 * 3600.0))
def test_timeout_is_written_never_shorter(seconds: float) -> None:
    """Rounded up, by little."""
    read = grpc_http2.read_timeout(grpc_http2.write_timeout(seconds))

    assert read is not None
    assert seconds - 1e-6 <= read <= seconds * 1.01 + 1e-5


@given(st.text())
def test_message_survives(text: str) -> None:
    """Percent-encoding takes every character."""
    text = text.encode(errors="replace").decode()
    written = grpc_http2.write_message(text)

    assert grpc_http2.read_message(written) == text
    assert written.isascii()


@given(st.lists(st.binary(max_size=20), max_size=6), st.integers(1, 7))
def test_messages_are_counted_however_cut(messages: list[bytes], cut: int) -> None:
    """Whole ones count; the longest is seen by its prefix."""
    body = b"".join(b"\0" + len(one).to_bytes(4) + one for one in messages)
    counted = Messages()

    longest = [counted.take(body[at : at + cut]) for at in range(0, len(body), cut)]

    assert counted.whole == len(messages)
    assert counted.is_between_messages
    assert max(longest, default=0) == max(map(len, messages), default=0)
    assert counted.has_bytes is bool(messages)
    assert counted.has_several is (len(messages) > 1)


def test_second_message_that_only_begins() -> None:
    """One byte of it is enough to tell a stream."""
    counted = Messages()
    counted.take(b"\0\0\0\0\1a")
    assert not counted.has_several
    counted.take(b"\0")
    assert counted.has_several


def test_message_that_is_cut_off() -> None:
    """Neither whole nor between."""
    counted = Messages()
    counted.take(b"\0\0\0\0\5ab")

    assert counted.whole == 0
    assert not counted.is_between_messages


def test_other_protocols_answers() -> None:
    """HTTP's statuses and HTTP/2's resets become gRPC's."""
    assert grpc_http2.of_http(503) is Status.UNAVAILABLE
    assert grpc_http2.of_http(418) is Status.UNKNOWN
    assert grpc_http2.of_reset(8) is Status.CANCELLED
    assert grpc_http2.of_reset(2) is Status.INTERNAL
