from __future__ import annotations

import socket

import pytest

from fleet.alerts.senders import SendError
from fleet.alerts.senders.http import RefusedTarget, check_host, is_public, post
from tests.fakes.receivers import receiving


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "::1",
        "fe80::1", "fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "224.0.0.1",
        "64:ff9b::7f00:1", "2002:7f00:1::",
    ],
)  # fmt: skip
def test_private_addresses_are_not_public(address: str) -> None:
    """Also inside an IPv6 address."""
    assert not is_public(address)


def test_public_addresses_are_public() -> None:
    """Of both families."""
    assert is_public("93.184.216.34")
    assert is_public("2606:2800:220:1:248:1893:25c8:1946")


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/", "http://[::1]:1/", "http://localhost:1/", "http://0/", "http://2130706433/"],
)
def test_post_refuses_private_targets_however_they_are_written(url: str) -> None:
    """As an address, as a name, and as a number."""
    with pytest.raises(SendError):
        post(url, b"", {}, allow_private=False)


def test_name_that_leads_inside_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A public name with a private address, among others."""

    def lookup(host: str, *_: object, **__: object) -> list[object]:
        addresses = ("93.184.216.34", "10.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    with pytest.raises(RefusedTarget):
        check_host("innocent.example.com")
    with pytest.raises(RefusedTarget):
        post("http://innocent.example.com/", b"", {}, allow_private=False)


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
