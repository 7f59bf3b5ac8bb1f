"""What CONNECT may ask for."""

from __future__ import annotations

import base64

import pytest

from fleet.protocol.tunnel import connect
from fleet.protocol.tunnel.connect import RefusalReason, RefusedError, ServiceAddress


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        ("web.agent-7:80", ServiceAddress("web", "agent-7")),
        ("Web.agent-7:443", ServiceAddress("web", "agent-7")),
        ("web.agent-7", ServiceAddress("web", "agent-7")),
        ("ssh.db.example:22", ServiceAddress("ssh", "db.example")),
        (
            "web.5f2b0c1e-0000-5000-8000-000000000001:1",
            ServiceAddress("web", "5f2b0c1e-0000-5000-8000-000000000001"),
        ),
    ],
)
def test_service_of_an_agent(target: str, asked: ServiceAddress) -> None:
    """The service up to the first dot, the agent behind it; the port is not looked at."""
    assert connect.parse(target) == asked


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("127.0.0.1:22", "127.0.0.1 is an IP address"),
        ("[::1]:22", r"\[::1\] is an IP address"),
        ("localhost:22", "'localhost' does not name a service of an agent"),
        ("web.:80", "'web.' does not name a service"),
        (":80", "'' does not name a service"),
        ("web.agent-7:http", "has no numeric port"),
        ("web.agent-7:0", "port 0 is out of range"),
        ("web.agent-7:65536", "port 65536 is out of range"),
        ("web.agent-7:99999999", "port 99999999 is out of range"),
        ("web.agent-7:" + "9" * 5000, "port 9999999999 is out of range"),
        ("_status.agent-7:80", "'_status' is not a service name"),
        ("-.agent-7:80", "'-' is not a service name"),
    ],
)
def test_anything_else_is_refused(target: str, why: str) -> None:
    """No address, no host, nothing of ours."""
    with pytest.raises(RefusedError, match=why) as refusal:
        connect.parse(target)
    assert refusal.value.reason is RefusalReason.NAME


@pytest.mark.parametrize(
    ("authorization", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic " + base64.b64encode(b"me:abc:d").decode(), "abc:d"),
        ("Basic " + base64.b64encode(b"abc").decode(), ""),
        ("Basic !", ""),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), ""),
        ("Digest abc", ""),
        ("", ""),
    ],
)
def test_token_of_a_header(authorization: str, token: str) -> None:
    """Bearer has it plain, Basic as the password."""
    assert connect.token_of(authorization) == token


def test_sentence_in_a_status_line() -> None:
    """No line ends, nothing but ASCII, and not for ever."""
    assert connect.status_line_text("a\r\nb ü") == "a  b  "
    assert len(connect.status_line_text("x" * 1000)) == 200


def test_every_reason_has_its_word() -> None:
    """No two are counted as one."""
    assert len({reason.label for reason in RefusalReason}) == len(RefusalReason)
    assert all(400 <= reason.status < 600 for reason in RefusalReason)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"transfer-encoding", b"chunked")],
        [(b"content-length", b"5")],
        [(b"content-length", b"5"), (b"transfer-encoding", b"chunked")],
        [(b"host", b"x"), (b"content-length", b"0"), (b"transfer-encoding", b"identity")],
    ],
)
def test_body_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    """Two who read such a request end it at different places."""
    with pytest.raises(RefusedError, match="must not have a body") as refusal:
        connect.check_framing(headers)
    assert refusal.value.reason is RefusalReason.MALFORMED


def test_empty_body_is_none() -> None:
    """Some programs say so."""
    connect.check_framing([(b"host", b"x"), (b"content-length", b"0")])
