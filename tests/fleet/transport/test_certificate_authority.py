"""The demo's CA: its certificates are accepted by a real TLS handshake, and are issued once."""

from __future__ import annotations

import datetime
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from fleet.transport import certificate_authority
from fleet.transport.tls import SERVER_NAME, SERVER_ROLES, server_name_of

NOW = datetime.datetime.now(datetime.UTC)


def _handshake(
    server: certificate_authority.KeyPair, client: certificate_authority.KeyPair, hostname: str
) -> None:
    """Perform a mutual TLS handshake in memory. Raises ssl.SSLError if a side refuses."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(server.certificate, server.key)
    server_side.load_verify_locations(server.ca)
    server_side.verify_mode = ssl.CERT_REQUIRED
    client_side = ssl.create_default_context(cafile=client.ca)
    client_side.load_cert_chain(client.certificate, client.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client_side.wrap_bio(to_client, to_server, server_hostname=hostname),
        server_side.wrap_bio(to_server, to_client, server_side=True),
    ]
    finished_ends: set[int] = set()
    for _ in range(10):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                finished_ends.add(number)
            except ssl.SSLWantReadError:
                continue
        if finished_ends == {0, 1}:
            return
    raise AssertionError("the handshake did not end")


def test_issue_for_server_and_client_makes_a_mutual_handshake(tmp_path: Path) -> None:
    """A proxy and an agent of one CA accept each other, by address and by server name."""
    ca = certificate_authority.ensure_authority(tmp_path / "pki", now=NOW)
    proxy = certificate_authority.issue(ca, "proxy-1", role="proxy", now=NOW)
    agent = certificate_authority.issue(ca, "agent-1", role="agent", now=NOW)

    for hostname in ("127.0.0.1", SERVER_NAME, "proxy-1"):
        _handshake(proxy, agent, hostname)


def test_issue_by_another_ca_is_refused(tmp_path: Path) -> None:
    own_ca = certificate_authority.ensure_authority(tmp_path / "ours", now=NOW)
    other_ca = certificate_authority.ensure_authority(tmp_path / "theirs", now=NOW)
    server = certificate_authority.issue(own_ca, "proxy-1", role="proxy", now=NOW)
    foreign_pair = certificate_authority.issue(other_ca, "agent-1", role="agent", now=NOW)
    client_pair = certificate_authority.KeyPair(
        ca=own_ca.ca, certificate=foreign_pair.certificate, key=foreign_pair.key
    )

    with pytest.raises(ssl.SSLError):
        _handshake(server, client_pair, "127.0.0.1")


def test_issue_again_keeps_valid_certificates(tmp_path: Path) -> None:
    """A certificate that expires soon, is damaged, or is of an older CA is replaced."""
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    first = certificate_authority.issue(ca, "auth-1", role="auth", now=NOW).certificate.read_bytes()
    assert (
        certificate_authority.ensure_authority(tmp_path, now=NOW).certificate.read_bytes()
        == ca.certificate.read_bytes()
    )
    assert certificate_authority.issue(ca, "auth-1", role="auth", now=NOW).certificate.read_bytes() == first

    later = NOW + datetime.timedelta(days=364, hours=1)
    renewed = certificate_authority.ensure_authority(tmp_path, now=later)
    second = certificate_authority.issue(renewed, "auth-1", role="auth", now=later).certificate.read_bytes()
    assert second != first

    (tmp_path / "auth-1.crt").write_text("damaged")
    third = certificate_authority.issue(renewed, "auth-1", role="auth", now=later).certificate.read_bytes()
    assert third.startswith(b"-----BEGIN CERTIFICATE")


def test_private_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    ca = certificate_authority.ensure_authority(tmp_path / "pki", now=NOW)
    pair = certificate_authority.issue(ca, "auth-1", role="auth", now=NOW)

    for key in (ca.key, pair.key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_issue_with_a_damaged_ca_fails(tmp_path: Path) -> None:
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    ca.key.write_text("damaged")

    with pytest.raises(ValueError, match="PEM"):
        certificate_authority.issue(ca, "auth-1", role="auth", now=NOW)


def test_issue_holds_when_the_clock_is_set_back_by_an_hour(tmp_path: Path) -> None:
    """Certificates are valid from some time before their issue, the CA's included."""
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    pair = certificate_authority.issue(ca, "proxy-1", role="proxy", now=NOW)
    for path in (ca.certificate, pair.certificate):
        valid_from = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_before_utc
        assert valid_from < NOW - datetime.timedelta(hours=1, minutes=30)


@pytest.mark.parametrize("role", ["agent", "console", ""])
def test_client_certificate_cannot_serve(tmp_path: Path, role: str) -> None:
    """A stolen certificate of an agent cannot be used as a proxy, with any name."""
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    stolen = certificate_authority.issue(ca, "agent-1", role=role, now=NOW)
    agent = certificate_authority.issue(ca, "agent-2", role="agent", now=NOW)
    for hostname in ("127.0.0.1", SERVER_NAME, "localhost", "agent-1"):
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            _handshake(stolen, agent, hostname)


def test_server_certificate_is_valid_for_its_role_only(tmp_path: Path) -> None:
    """Each server role has its own name, which clients expect."""
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    agent = certificate_authority.issue(ca, "agent-1", role="agent", now=NOW)
    for role in SERVER_ROLES:
        server = certificate_authority.issue(ca, f"{role}-1", role=role, now=NOW)
        _handshake(server, agent, server_name_of(role))
        for other_role in {*SERVER_ROLES} - {role}:
            with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
                _handshake(server, agent, server_name_of(other_role))


@pytest.mark.parametrize("hostname", ["teleport.cluster.local", "64656661756c74.teleport.cluster.local"])
def test_server_certificate_has_teleports_names(tmp_path: Path, hostname: str) -> None:
    """The name of all Teleport clusters, and that of one cluster in hexadecimal digits."""
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    _handshake(
        certificate_authority.issue(ca, "auth-1", role="auth", now=NOW),
        certificate_authority.issue(ca, "agent-1", role="agent", now=NOW),
        hostname,
    )


def test_issue_again_replaces_other_contents(tmp_path: Path) -> None:
    """With another role or other agents, the earlier certificate would allow too much or too little."""
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    certificates = [
        certificate_authority.issue(ca, "x", role=role, now=NOW, uris=uris).certificate.read_bytes()
        for role, uris in (
            ("proxy", ()),
            ("agent", ()),
            ("agent", ("refloat:agents:a-1..2",)),
            ("agent", ("refloat:agents:a-1..1",)),
            ("agent", ("refloat:agents:a-1..1",)),
        )
    ]
    assert len(set(certificates)) == 4
    assert certificates[-2] == certificates[-1]
