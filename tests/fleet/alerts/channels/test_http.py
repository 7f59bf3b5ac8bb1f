# ruff: noqa: RUF001 - other digits and dots are what these tests are about
from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from fleet.alerts.channels import SendError, http
from fleet.alerts.channels.http import PrivateAddressError, check_host, post
from tests.fakes.receivers import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A service on this machine that no message may reach."""
    with receiving() as running:
        yield running


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
def test_no_spelling_of_this_machine_is_reached(receiver: Receiver, host: str) -> None:
    """As an address, a name and a number; in other digits, with other dots, and inside an address of IPv6."""
    port = urlsplit(receiver.url).port
    with pytest.raises(SendError):
        post(f"http://{host}:{port}/hook", b"", {}, allow_private=False)
    assert receiver.requests == []


@pytest.mark.parametrize(
    "host", ["①②⑦.0.0.1", "１２７.0.0.1", "127.0.0.1", "[::ffff:127.0.0.1]", "localhost"]
)
def test_sentence_says_that_the_target_is_inside(receiver: Receiver, host: str) -> None:
    """Whoever meant it learns what to allow, and no second attempt is made."""
    with pytest.raises(PrivateAddressError, match="is a private or loopback address") as caught:
        post(f"http://{host}:{urlsplit(receiver.url).port}/hook", b"", {}, allow_private=False)
    assert caught.value.permanent


def test_address_that_is_connected_to_counts(monkeypatch: pytest.MonkeyPatch, receiver: Receiver) -> None:
    """With every check before it wrong, as when a name's server answers another address a moment later."""
    monkeypatch.setattr(http, "is_public", lambda address: True)
    for host in ("localhost", "127.0.0.1", "①②⑦.0.0.1"):
        with pytest.raises(PrivateAddressError):
            post(f"http://{host}:{urlsplit(receiver.url).port}/hook", b"", {}, allow_private=False)
    assert receiver.requests == []


def _answering(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    def lookup(host: str, *_: object, **__: object) -> list[object]:
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (one, 0, 0, 0))
            if ipaddress.ip_address(one).version == 6
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0))
            for one in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@pytest.mark.parametrize(
    "inside", ["10.0.0.1", "192.0.0.192", "169.254.169.254", "64:ff9b:1::a00:1", "fd00::1"]
)
def test_name_that_leads_inside_is_refused(monkeypatch: pytest.MonkeyPatch, inside: str) -> None:
    """A public name with a private address among others."""
    _answering(monkeypatch, "93.184.216.34", inside)
    with pytest.raises(PrivateAddressError):
        check_host("innocent.example.com")
    with pytest.raises(PrivateAddressError):
        post("http://innocent.example.com/", b"", {}, allow_private=False)


def test_host_that_is_no_name_is_an_error() -> None:
    """Not a traceback of the codec of names."""
    with pytest.raises(SendError, match="could not be resolved"):
        check_host("a" * 64 + ".example.com")


@pytest.mark.parametrize(
    ("status", "permanent"),
    [(500, False), (429, False), (404, False), (302, False), (400, True), (422, True)],
)
def test_answers_other_than_2xx_are_errors(status: int, permanent: bool) -> None:
    """A redirect is not followed: it may lead anywhere."""
    with receiving(status) as receiver, pytest.raises(SendError, match=str(status)) as caught:
        post(receiver.url, b"{}", {}, allow_private=True)
    assert caught.value.permanent is permanent
    assert len(receiver.requests) == 1


def test_answer_of_a_service_inside_is_not_shown() -> None:
    """The delivery log has its status alone; of the internet it has the beginning of the text, on one line."""
    with receiving(500, 200) as receiver:
        with pytest.raises(SendError) as caught:
            post(receiver.url, b"{}", {}, allow_private=True)
        assert str(caught.value) == "the receiver responded with status 500"
        assert post(receiver.url, b"{}", {}, allow_private=True) == ""
    assert http._printable_text(b"no\r\nsuch\x1b[2Jhook\xff \n") == "no  such [2Jhook\ufffd"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "gopher://x/", "https://", "http://[", "http://x:99999/"]
)
def test_what_is_no_web_address_is_refused_for_good(url: str) -> None:
    """With a sentence."""
    with pytest.raises(SendError) as caught:
        post(url, b"", {}, allow_private=True)
    assert caught.value.permanent


def test_nobody_listening_is_an_error_that_may_pass() -> None:
    """Connection refused."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(SendError) as caught:
            post(f"http://127.0.0.1:{unused.getsockname()[1]}/", b"", {}, allow_private=True)
    assert not caught.value.permanent
