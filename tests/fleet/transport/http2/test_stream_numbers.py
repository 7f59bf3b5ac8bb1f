"""Numbers of streams, and frames that come after a stream's end."""

from __future__ import annotations

import pytest

from fleet.transport.http2 import stream_numbers
from fleet.transport.http2.frames import Code, ConnectionBrokenError
from fleet.transport.http2.stream_numbers import StreamNumbers


def code_of(numbers: StreamNumbers, number: int) -> Code:
    with pytest.raises(ConnectionBrokenError) as caught:
        numbers.needs_reset(number)
    return caught.value.code


def test_client_opens_odd_streams() -> None:
    """Each number is the next odd one."""
    numbers = StreamNumbers(server=False)

    assert [numbers.next(), numbers.next()] == [1, 3]
    assert [number for number in range(7) if numbers.is_idle(number)] == [0, 2, 4, 5, 6]


def test_server_refuses_even_streams() -> None:
    """They belong to the server, which opens none."""
    numbers = StreamNumbers(server=True)
    with pytest.raises(ConnectionBrokenError) as caught:
        numbers.open(2)

    assert caught.value.code is Code.PROTOCOL_ERROR


@pytest.mark.parametrize("server", [True, False])
def test_stream_that_was_never_opened(server: bool) -> None:
    """Number 0, an even one and a future one break the connection."""
    numbers = StreamNumbers(server=server)
    if server:
        numbers.open(1)
    else:
        numbers.next()

    assert [code_of(numbers, number) for number in (0, 2, 3)] == [Code.PROTOCOL_ERROR] * 3


def test_frames_after_a_reset() -> None:
    """Ours may have crossed them: they are passed over. After the peer's own reset they are answered."""
    numbers = StreamNumbers(server=True)
    for number in (1, 3):
        numbers.open(number)
    numbers.reset(1, is_local=True)
    numbers.reset(3, is_local=False)

    assert not numbers.needs_reset(1)
    assert numbers.needs_reset(3)


def test_frames_after_an_end() -> None:
    """A client broke the connection; a server may have meant a stream whose reset was forgotten."""
    server, client = StreamNumbers(server=True), StreamNumbers(server=False)
    server.open(1)
    client.next()

    assert code_of(server, 1) is Code.STREAM_CLOSED
    assert client.needs_reset(1)


def test_number_that_was_passed_over() -> None:
    """A stream cannot begin after one with a greater number."""
    numbers = StreamNumbers(server=True)
    for number in (5, 7, 21):
        numbers.open(number)

    assert [code_of(numbers, number) for number in (1, 3, 9, 19)] == [Code.PROTOCOL_ERROR] * 4
    assert [code_of(numbers, number) for number in (5, 7, 21)] == [Code.STREAM_CLOSED] * 3


def test_resets_that_were_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and a frame to a stream that may have been reset never breaks the connection."""
    monkeypatch.setattr(stream_numbers, "_MOST_RESETS", 3)
    numbers = StreamNumbers(server=True)
    for number in range(1, 13, 2):
        numbers.open(number)
        if number <= 9:
            numbers.reset(number, is_local=True)

    assert len(numbers._reset) == 3
    assert [numbers.needs_reset(number) for number in (1, 3, 5, 9)] == [True, True, False, False]
    assert code_of(numbers, 11) is Code.STREAM_CLOSED
