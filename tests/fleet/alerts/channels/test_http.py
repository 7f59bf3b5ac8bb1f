# ruff: noqa: RUF001 - other digits and dots are what these tests are about
from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest

from fleet.alerts.channels import SendError, http
from fleet.alerts.channels.http import (
    PrivateAddressError,
    ReceiverResponse,
    parse_retry_after,
    post,
    post_for_response,
    require_public_host,
)
from tests.fakes.post_server import PostAnswer, serve_posts
from tests.fakes.receivers import Receiver, run_receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Run a service on this machine that no notification may reach."""
    with run_receiver() as server:
        yield server


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1",
        "017700000001", "0", "0.0.0.0", "①②⑦.0.0.1", "①②⑦。0。0。1", "１２７.0.0.1", "𝟏𝟐𝟕.𝟎.𝟎.𝟏", "127。0。0。1",
        "127．0．0．1", "١٢٧.0.0.1", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "LOCALHOST", "localhost.", "127.0.0.1.", "[::1]", "[::]",
        "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
        "[0:0:0:0:0:0:0:1]", "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]", "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]", "%31%32%37.0.0.1", "127.0.0.1%00.example.com", "user@127.0.0.1",
        "example.com@127.0.0.1",
    ],
)  # fmt: skip
def test_no_spelling_of_a_loopback_address_is_reached(receiver: Receiver, host: str) -> None:
    """As an address, a name and a number; with Unicode digits and dots, and inside an IPv6 address."""
    port = urlsplit(receiver.url).port
    with pytest.raises(SendError):
        post(f"http://{host}:{port}/hook", b"", {}, allow_private=False)
    assert receiver.requests == []


@pytest.mark.parametrize(
    "host", ["①②⑦.0.0.1", "１２７.0.0.1", "127.0.0.1", "[::ffff:127.0.0.1]", "localhost"]
)
def test_error_says_that_the_address_is_private(receiver: Receiver, host: str) -> None:
    """The error is permanent."""
    with pytest.raises(PrivateAddressError, match="is a private or loopback address") as error_info:
        post(f"http://{host}:{urlsplit(receiver.url).port}/hook", b"", {}, allow_private=False)
    assert error_info.value.permanent


def test_address_of_the_connection_is_checked(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    """Also if every earlier check is wrong, as when DNS returns another address a moment later."""
    monkeypatch.setattr(http, "is_public", lambda address: True)
    for host in ("localhost", "127.0.0.1", "①②⑦.0.0.1"):
        with pytest.raises(PrivateAddressError):
            post(f"http://{host}:{urlsplit(receiver.url).port}/hook", b"", {}, allow_private=False)
    assert receiver.requests == []


def _fake_dns(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    def getaddrinfo(host: str, *_: object, **__: object) -> list[object]:
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, 0, 0, 0))
            if ipaddress.ip_address(address).version == 6
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))
            for address in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


@pytest.mark.parametrize(
    "private_address", ["10.0.0.1", "192.0.0.192", "169.254.169.254", "64:ff9b:1::a00:1", "fd00::1"]
)
def test_host_that_resolves_to_a_private_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, private_address: str
) -> None:
    """A public host name with a private address among its addresses."""
    _fake_dns(monkeypatch, "93.184.216.34", private_address)
    with pytest.raises(PrivateAddressError):
        require_public_host("innocent.example.com")
    with pytest.raises(PrivateAddressError):
        post("http://innocent.example.com/", b"", {}, allow_private=False)


def test_invalid_host_name_is_an_error() -> None:
    """Not a traceback of the IDNA codec."""
    with pytest.raises(SendError, match="could not be resolved"):
        require_public_host("a" * 64 + ".example.com")


@pytest.mark.parametrize(
    ("status", "permanent"),
    [(500, False), (429, False), (404, False), (302, False), (400, True), (422, True)],
)
def test_status_other_than_2xx_is_an_error(status: int, permanent: bool) -> None:
    """A redirect is not followed."""
    with run_receiver(status) as receiver, pytest.raises(SendError, match=str(status)) as error_info:
        post(receiver.url, b"{}", {}, allow_private=True)
    assert error_info.value.permanent is permanent
    assert len(receiver.requests) == 1


def test_response_body_of_a_private_service_is_not_shown() -> None:
    """The delivery log shows its status only; for a public service it shows the beginning of the body on one line."""
    with run_receiver(500, 200) as receiver:
        with pytest.raises(SendError) as error_info:
            post(receiver.url, b"{}", {}, allow_private=True)
        assert str(error_info.value) == "the receiver responded with status 500"
        assert post(receiver.url, b"{}", {}, allow_private=True) == ""
    assert ReceiverResponse(500, b"no\r\nsuch\x1b[2Jhook\xff \n").excerpt == "no  such [2Jhook\ufffd"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://x/", "https://", "http://[", "http://x:99999/"]
)
def test_invalid_url_is_a_permanent_error(url: str) -> None:
    with pytest.raises(SendError) as error_info:
        post(url, b"", {}, allow_private=True)
    assert error_info.value.permanent


def test_refused_connection_is_a_temporary_error() -> None:
    with socket.socket() as port_holder:
        port_holder.bind(("127.0.0.1", 0))
        with pytest.raises(SendError) as error_info:
            post(f"http://127.0.0.1:{port_holder.getsockname()[1]}/", b"", {}, allow_private=True)
    assert not error_info.value.permanent
    assert "cannot connect to 127.0.0.1:" in str(error_info.value)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("30", 30.0), (" 0 ", 0.0), ("9" * 400, 999_999_999.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 60.0), ("Wed, 21 Oct 2026 07:26:00 GMT", 0.0),
        ("", None), ("soon", None), ("-5", None), ("1.5", None), ("²", None), ("٣", None),
        ("Wed, 99 Oct 2026 07:28:00 GMT", None),
    ],
)  # fmt: skip
def test_retry_after_is_a_number_or_a_date(header: str, seconds: float | None) -> None:
    """RFC 9110; anything else is ignored."""
    now = datetime(2026, 10, 21, 7, 27, tzinfo=UTC).timestamp()
    assert parse_retry_after(header, now) == seconds


def test_error_carries_the_time_to_wait() -> None:
    """Of any receiver and kind of channel."""
    answers = [PostAnswer(429, b"", {"Retry-After": "20"}), PostAnswer(503, b"")]
    with serve_posts(lambda request: answers.pop(0)) as url:
        for seconds in (20.0, None):
            with pytest.raises(SendError) as error_info:
                post(url, b"{}", {}, allow_private=True)
            assert error_info.value.retry_after_seconds == seconds


def test_whole_response_is_read_up_to_a_limit() -> None:
    """A receiver may send forever."""
    with serve_posts(lambda request: PostAnswer(200, b"x" * 600_000)) as url:
        assert post_for_response(url, b"{}", {}, allow_private=True).body == b"x" * 500_000
