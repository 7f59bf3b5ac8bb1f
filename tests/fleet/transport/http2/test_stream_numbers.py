"""Stream numbers, and frames after the end of a stream."""

from __future__ import annotations

import pytest

from fleet.transport.http2 import stream_numbers
from fleet.transport.http2.frames import ErrorCode, Http2ConnectionError
from fleet.transport.http2.stream_numbers import StreamNumbers


def error_code_of(numbers: StreamNumbers, number: int) -> ErrorCode:
    with pytest.raises(Http2ConnectionError) as caught:
        numbers.needs_reset(number)
    return caught.value.code


def test_client_opens_odd_streams() -> None:
    """Each number is the next odd one."""
    numbers = StreamNumbers(is_server=False)

    assert [numbers.next(), numbers.next()] == [1, 3]
    assert [number for number in range(7) if numbers.is_idle(number)] == [0, 2, 4, 5, 6]


def test_server_refuses_even_streams() -> None:
    """They belong to the server, which opens none."""
    numbers = StreamNumbers(is_server=True)
    with pytest.raises(Http2ConnectionError) as caught:
        numbers.open(2)

    assert caught.value.code is ErrorCode.PROTOCOL_ERROR


@pytest.mark.parametrize("is_server", [True, False])
def test_frame_of_an_idle_stream_ends_the_connection(is_server: bool) -> None:
    """Number 0, an even one and a future one."""
    numbers = StreamNumbers(is_server=is_server)
    if is_server:
        numbers.open(1)
    else:
        numbers.next()

    assert [error_code_of(numbers, number) for number in (0, 2, 3)] == [ErrorCode.PROTOCOL_ERROR] * 3


def test_frames_after_a_reset() -> None:
    """After our reset they are ignored; after the peer's own reset they get a reset."""
    numbers = StreamNumbers(is_server=True)
    for number in (1, 3):
        numbers.open(number)
    numbers.reset(1, is_local=True)
    numbers.reset(3, is_local=False)

    assert not numbers.needs_reset(1)
    assert numbers.needs_reset(3)


def test_frames_after_an_end() -> None:
    """From a client they end the connection; from a server they may belong to a forgotten reset."""
    server, client = StreamNumbers(is_server=True), StreamNumbers(is_server=False)
    server.open(1)
    client.next()

    assert error_code_of(server, 1) is ErrorCode.STREAM_CLOSED
    assert client.needs_reset(1)


def test_skipped_number_cannot_be_opened() -> None:
    """A stream cannot begin after one with a greater number."""
    numbers = StreamNumbers(is_server=True)
    for number in (5, 7, 21):
        numbers.open(number)

    assert [error_code_of(numbers, number) for number in (1, 3, 9, 19)] == [ErrorCode.PROTOCOL_ERROR] * 4
    assert [error_code_of(numbers, number) for number in (5, 7, 21)] == [ErrorCode.STREAM_CLOSED] * 3


def test_forgotten_resets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and a frame for a stream that may have been reset does not end the connection."""
    monkeypatch.setattr(stream_numbers, "_MOST_RESETS", 3)
    numbers = StreamNumbers(is_server=True)
    for number in range(1, 13, 2):
        numbers.open(number)
        if number <= 9:
            numbers.reset(number, is_local=True)

    assert len(numbers._reset_streams) == 3
    assert [numbers.needs_reset(number) for number in (1, 3, 5, 9)] == [True, True, False, False]
    assert error_code_of(numbers, 11) is ErrorCode.STREAM_CLOSED
