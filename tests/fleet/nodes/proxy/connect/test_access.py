"""Which users may use a CONNECT port."""

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
ALL_INTERFACES = ("0.0.0.0", 0)


def peer_certificate(unit: str) -> dict[str, Any]:
    """Return a peer's certificate in the format of `ssl`."""
    return {"subject": ((("organizationalUnitName", unit),), (("commonName", "x"),))}


@pytest.fixture
def keys(tmp_path: Path) -> TLSFiles:
    """Return a proxy's certificate with the CA that makes the proxy require certificates."""
    now = datetime.now(UTC)
    ca = certificate_authority.ensure_authority(tmp_path, now=now)
    pair = certificate_authority.issue(ca, "proxy-1", role="proxy", now=now)
    return TLSFiles(pair.certificate, pair.key, pair.ca)


def expect_refusal(
    access: ConnectAccess, authorization: str = "", client_certificate: dict[str, Any] | None = None
) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        access.check(authorization, client_certificate)
    return caught.value


def test_loopback_port_accepts_everybody() -> None:
    """On loopback no token and no CA is needed."""
    ConnectAccess(ConnectFlags(LOOPBACK), TLSFiles()).check("", None)


def test_public_port_needs_tokens_or_a_ca(keys: TLSFiles) -> None:
    """Otherwise the proxy does not start."""
    with pytest.raises(NodeStartError, match=r"0\.0\.0\.0:0 is reachable from other machines"):
        ConnectAccess(ConnectFlags(ALL_INTERFACES), TLSFiles())
    with pytest.raises(NodeStartError, match="other machines"):
        ConnectAccess(ConnectFlags(ALL_INTERFACES), TLSFiles(keys.certificate, keys.key))
    ConnectAccess(ConnectFlags(ALL_INTERFACES, tokens=(TOKEN,)), TLSFiles())
    ConnectAccess(ConnectFlags(ALL_INTERFACES), keys)


def test_only_known_tokens_are_accepted() -> None:
    """A missing, a wrong and an incomplete token are refused."""
    access = ConnectAccess(ConnectFlags(LOOPBACK, tokens=("another-token-that-is", TOKEN)), TLSFiles())
    access.check(f"Bearer {TOKEN}", None)
    for authorization_header in ("", "Bearer ", "Bearer a-token", f"Bearer {TOKEN}x"):
        assert expect_refusal(access, authorization_header).reason is RefusalReason.UNAUTHENTICATED
    assert "unknown token" in str(expect_refusal(access, "Bearer wrong"))
    assert (
        str(expect_refusal(access))
        == "authentication required: send a token in the Proxy-Authorization header"
    )


def test_certificate_of_any_role_but_agent_is_accepted(keys: TLSFiles) -> None:
    """Agents of the fleet must not use the port."""
    access = ConnectAccess(ConnectFlags(ALL_INTERFACES), keys)
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_OPTIONAL
    access.check("", peer_certificate("console"))
    assert (
        expect_refusal(access, client_certificate=peer_certificate("agent")).reason is RefusalReason.FORBIDDEN
    )
    assert str(expect_refusal(access)) == "authentication required: send a client certificate of this fleet"


def test_token_or_certificate_is_enough(keys: TLSFiles) -> None:
    """If both are configured, the error names both."""
    access = ConnectAccess(ConnectFlags(ALL_INTERFACES, tokens=(TOKEN,)), keys)
    access.check(f"Bearer {TOKEN}", None)
    access.check("", peer_certificate("console"))
    assert "a token in the Proxy-Authorization header or a client certificate of this fleet" in str(
        expect_refusal(access)
    )


def test_invalid_key_files_stop_the_start(keys: TLSFiles, tmp_path: Path) -> None:
    """The error says which files cannot be used."""
    (tmp_path / "bad").write_text("bad")
    with pytest.raises(NodeStartError, match="cannot use"):
        ConnectAccess(ConnectFlags(LOOPBACK), TLSFiles(tmp_path / "bad", keys.key))
    with pytest.raises(NodeStartError, match="certificate and its key"):
        ConnectAccess(ConnectFlags(LOOPBACK), TLSFiles(authority=keys.authority))


def test_token_file_has_one_token_per_line(tmp_path: Path) -> None:
    """Comments and empty lines are skipped."""
    path = tmp_path / "tokens"
    path.write_text(f"# who\n{TOKEN}\n\n another-token-that-is \n")
    assert read_tokens(path) == (TOKEN, "another-token-that-is")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "contains no token"),
        ("# x\n", "contains no token"),
        ("short\n", "at least 16"),
        ("x " * 20, "16"),
    ],
)
def test_invalid_token_file_stops_the_start(tmp_path: Path, text: str, message: str) -> None:
    """The file has no token or a bad one, or cannot be read."""
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(NodeStartError, match=message):
        read_tokens(path)
    with pytest.raises(NodeStartError, match="cannot read"):
        read_tokens(tmp_path / "none")
