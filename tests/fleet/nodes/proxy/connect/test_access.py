"""Who may use a CONNECT port."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fleet.nodes.proxy.connect.access import ConnectAccess, ConnectFlags, read_tokens
from fleet.nodes.shared.lifecycle import NodeStartError
from fleet.protocol.tunnel.connect import RefusalReason, RefusedError
from fleet.transport import certificate_authority
from fleet.transport.tls import TLSFiles

TOKEN = "a-token-of-somebody"
LOOPBACK = ("127.0.0.1", 0)
ANYWHERE = ("0.0.0.0", 0)


def certificate(unit: str) -> dict[str, Any]:
    """As ssl tells of a peer's."""
    return {"subject": ((("organizationalUnitName", unit),), (("commonName", "x"),))}


@pytest.fixture
def keys(tmp_path: Path) -> TLSFiles:
    """A proxy's, with the CA that makes it demand certificates."""
    now = datetime.now(UTC)
    ca = certificate_authority.ensure_authority(tmp_path, now=now)
    pair = certificate_authority.issue(ca, "proxy-1", role="proxy", now=now)
    return TLSFiles(pair.certificate, pair.key, pair.ca)


def refusal(
    access: ConnectAccess, authorization: str = "", shown: dict[str, Any] | None = None
) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        access.check(authorization, shown)
    return refused.value


def test_everybody_of_this_machine() -> None:
    """On loopback, without a token or a CA, whoever comes."""
    ConnectAccess(ConnectFlags(LOOPBACK), TLSFiles()).check("", None)


def test_anywhere_needs_a_rule(keys: TLSFiles) -> None:
    """Off loopback: a token or a certificate, else it does not start."""
    with pytest.raises(NodeStartError, match=r"0\.0\.0\.0:0 is reachable from other machines"):
        ConnectAccess(ConnectFlags(ANYWHERE), TLSFiles())
    with pytest.raises(NodeStartError, match="other machines"):
        ConnectAccess(ConnectFlags(ANYWHERE), TLSFiles(keys.certificate, keys.key))
    ConnectAccess(ConnectFlags(ANYWHERE, tokens=(TOKEN,)), TLSFiles())
    ConnectAccess(ConnectFlags(ANYWHERE), keys)


def test_token() -> None:
    """The right one in; none, a wrong one, and part of one not."""
    access = ConnectAccess(ConnectFlags(LOOPBACK, tokens=("another-token-that-is", TOKEN)), TLSFiles())
    access.check(f"Bearer {TOKEN}", None)
    for wrong in ("", "Bearer ", "Bearer a-token", f"Bearer {TOKEN}x"):
        assert refusal(access, wrong).reason is RefusalReason.UNAUTHENTICATED
    assert "unknown token" in str(refusal(access, "Bearer wrong"))
    assert str(refusal(access)) == "authentication required: send a token in the Proxy-Authorization header"


def test_certificate(keys: TLSFiles) -> None:
    """Anybody of the fleet but its agents."""
    access = ConnectAccess(ConnectFlags(ANYWHERE), keys)
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_OPTIONAL
    access.check("", certificate("console"))
    assert refusal(access, shown=certificate("agent")).reason is RefusalReason.FORBIDDEN
    assert str(refusal(access)) == "authentication required: send a client certificate of this fleet"


def test_token_or_certificate(keys: TLSFiles) -> None:
    """Where both are configured, either is enough, and the sentence names both."""
    access = ConnectAccess(ConnectFlags(ANYWHERE, tokens=(TOKEN,)), keys)
    access.check(f"Bearer {TOKEN}", None)
    access.check("", certificate("console"))
    assert "a token in the Proxy-Authorization header or a client certificate of this fleet" in str(
        refusal(access)
    )


def test_keys_that_are_none(keys: TLSFiles, tmp_path: Path) -> None:
    """A file that is damaged stops the start."""
    (tmp_path / "bad").write_text("bad")
    with pytest.raises(NodeStartError, match="cannot use"):
        ConnectAccess(ConnectFlags(LOOPBACK), TLSFiles(tmp_path / "bad", keys.key))
    with pytest.raises(NodeStartError, match="certificate and its key"):
        ConnectAccess(ConnectFlags(LOOPBACK), TLSFiles(authority=keys.authority))


def test_file_of_tokens(tmp_path: Path) -> None:
    """One a line; remarks and empty lines are none."""
    path = tmp_path / "tokens"
    path.write_text(f"# who\n{TOKEN}\n\n another-token-that-is \n")
    assert read_tokens(path) == (TOKEN, "another-token-that-is")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "contains no token"),
        ("# x\n", "contains no token"),
        ("short\n", "at least 16"),
        ("x " * 20, "16"),
    ],
)
def test_file_of_tokens_that_is_wrong(tmp_path: Path, text: str, why: str) -> None:
    """It stops the start."""
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(NodeStartError, match=why):
        read_tokens(path)
    with pytest.raises(NodeStartError, match="cannot read"):
        read_tokens(tmp_path / "none")
