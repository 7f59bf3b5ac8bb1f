"""Targets and headers of CONNECT requests."""

from __future__ import annotations

import base64

import pytest

from fleet.protocol.tunnel import connect
from fleet.protocol.tunnel.connect import RefusalReason, RefusedError, ServiceTarget


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("web.agent-7:80", ServiceTarget("web", "agent-7")),
        ("Web.agent-7:443", ServiceTarget("web", "agent-7")),
        ("web.agent-7", ServiceTarget("web", "agent-7")),
        ("ssh.db.example:22", ServiceTarget("ssh", "db.example")),
        (
            "web.5f2b0c1e-0000-5000-8000-000000000001:1",
            ServiceTarget("web", "5f2b0c1e-0000-5000-8000-000000000001"),
        ),
    ],
)
def test_service_of_an_agent(target: str, expected: ServiceTarget) -> None:
    """The service comes before the first dot, the agent after it; the port is ignored."""
    assert connect.parse(target) == expected


@pytest.mark.parametrize(
    ("target", "error"),
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
def test_other_target_is_refused(target: str, error: str) -> None:
    """IP addresses, host names and reserved services are refused."""
    with pytest.raises(RefusedError, match=error) as refusal:
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
    """Bearer has the plain token, Basic has it as the password."""
    assert connect.token_of(authorization) == token


def test_status_line_text_is_short_ascii() -> None:
    """Line breaks and other characters are replaced."""
    assert connect.status_line_text("a\r\nb ü") == "a  b  "
    assert len(connect.status_line_text("x" * 1000)) == 200


def test_refusal_reasons_have_unique_labels() -> None:
    """Metrics count each reason separately."""
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
    """Two programs could disagree about the end of such a request."""
    with pytest.raises(RefusedError, match="must not have a body") as refusal:
        connect.check_framing(headers)
    assert refusal.value.reason is RefusalReason.MALFORMED


def test_empty_body_is_accepted() -> None:
    connect.check_framing([(b"host", b"x"), (b"content-length", b"0")])
