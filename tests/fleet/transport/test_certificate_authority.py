"""The CA of the demo: what it issues is accepted by a real TLS handshake, and is made once."""

from __future__ import annotations

import datetime
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from fleet.transport import certificate_authority
from fleet.transport.tls import SERVER_NAME, SERVER_ROLES, role_name

NOW = datetime.datetime.now(datetime.UTC)


def _handshake(
    server: certificate_authority.KeyPair, client: certificate_authority.KeyPair, hostname: str
) -> None:
    """Let both sides finish a mutual TLS handshake in memory; raises ssl.SSLError when one refuses."""
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
    done: set[int] = set()
    for _ in range(10):
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
                done.add(number)
            except ssl.SSLWantReadError:
                continue
        if done == {0, 1}:
            return
    raise AssertionError("the handshake did not end")


def test_issue_for_server_and_client_makes_a_mutual_handshake(tmp_path: Path) -> None:
    """A proxy and an agent of one CA accept each other, by address and by the shared server name."""
    ca = certificate_authority.ensure_authority(tmp_path / "pki", now=NOW)
    proxy = certificate_authority.issue(ca, "proxy-1", role="proxy", now=NOW)
    agent = certificate_authority.issue(ca, "agent-1", role="agent", now=NOW)

    for hostname in ("127.0.0.1", SERVER_NAME, "proxy-1"):
        _handshake(proxy, agent, hostname)


def test_issue_by_another_ca_is_refused(tmp_path: Path) -> None:
    """A certificate of a foreign CA ends the handshake."""
    ours = certificate_authority.ensure_authority(tmp_path / "ours", now=NOW)
    theirs = certificate_authority.ensure_authority(tmp_path / "theirs", now=NOW)
    server = certificate_authority.issue(ours, "proxy-1", role="proxy", now=NOW)
    stranger = certificate_authority.issue(theirs, "agent-1", role="agent", now=NOW)
    mixed = certificate_authority.KeyPair(ca=ours.ca, certificate=stranger.certificate, key=stranger.key)

    with pytest.raises(ssl.SSLError):
        _handshake(server, mixed, "127.0.0.1")


def test_issue_again_keeps_what_is_valid(tmp_path: Path) -> None:
    """A second start finds the same files; one that is about to expire, damaged or of an older CA is replaced."""
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


def test_private_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    """No key file can be read by others."""
    ca = certificate_authority.ensure_authority(tmp_path / "pki", now=NOW)
    pair = certificate_authority.issue(ca, "auth-1", role="auth", now=NOW)

    for key in (ca.key, pair.key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_issue_with_a_damaged_ca_says_so(tmp_path: Path) -> None:
    """The error names the file."""
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    ca.key.write_text("damaged")

    with pytest.raises(ValueError, match="PEM"):
        certificate_authority.issue(ca, "auth-1", role="auth", now=NOW)


def test_issue_holds_when_the_clock_is_set_back_by_an_hour(tmp_path: Path) -> None:
    """What was issued a moment before is valid already, the CA's own certificate too."""
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    pair = certificate_authority.issue(ca, "proxy-1", role="proxy", now=NOW)
    for path in (ca.certificate, pair.certificate):
        begins = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_before_utc
        assert begins < NOW - datetime.timedelta(hours=1, minutes=30)


@pytest.mark.parametrize("role", ["agent", "console", ""])
def test_certificate_of_a_client_is_no_servers(tmp_path: Path, role: str) -> None:
    """A stolen one of an agent cannot answer in the place of a proxy, under any name."""
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    stolen = certificate_authority.issue(ca, "agent-1", role=role, now=NOW)
    agent = certificate_authority.issue(ca, "agent-2", role="agent", now=NOW)
    for hostname in ("127.0.0.1", SERVER_NAME, "localhost", "agent-1"):
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            _handshake(stolen, agent, hostname)


def test_certificate_of_one_kind_of_server_is_not_that_of_another(tmp_path: Path) -> None:
    """Each role of servers has a name of its own, and a client that expects it finds no other role."""
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    agent = certificate_authority.issue(ca, "agent-1", role="agent", now=NOW)
    for role in SERVER_ROLES:
        server = certificate_authority.issue(ca, f"{role}-1", role=role, now=NOW)
        _handshake(server, agent, role_name(role))
        for other in {*SERVER_ROLES} - {role}:
            with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
                _handshake(server, agent, role_name(other))


@pytest.mark.parametrize("hostname", ["teleport.cluster.local", "64656661756c74.teleport.cluster.local"])
def test_server_has_the_names_that_teleports_clients_ask_for(tmp_path: Path, hostname: str) -> None:
    """The name of all of Teleport's clusters, and that of one: its own name in hexadecimal digits."""
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    _handshake(
        certificate_authority.issue(ca, "auth-1", role="auth", now=NOW),
        certificate_authority.issue(ca, "agent-1", role="agent", now=NOW),
        hostname,
    )


def test_issue_again_replaces_what_says_something_else(tmp_path: Path) -> None:
    """Another role, and other agents: the file of before would let its owner do too much or too little."""
    ca = certificate_authority.ensure_authority(tmp_path, now=NOW)
    made = [
        certificate_authority.issue(ca, "x", role=role, now=NOW, uris=uris).certificate.read_bytes()
        for role, uris in (
            ("proxy", ()),
            ("agent", ()),
            ("agent", ("refloat:agents:a-1..2",)),
            ("agent", ("refloat:agents:a-1..1",)),
            ("agent", ("refloat:agents:a-1..1",)),
        )
    ]
    assert len(set(made)) == 4
    assert made[-2] == made[-1]
