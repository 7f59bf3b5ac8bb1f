from __future__ import annotations

import datetime
import re
from pathlib import Path

import grpc
import grpc.aio
import pytest
from cryptography.hazmat.primitives import serialization
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.transport import certificate_authority, channels
from fleet.transport.health import HealthServicer
from fleet.transport.http2.backend_dialer import create_client_tls_context, create_server_tls_context
from fleet.transport.process import ProcessHealth
from fleet.transport.tls import (
    AUTH_SERVER_NAME,
    SERVER_NAME,
    TLSError,
    TLSFiles,
    channel_credentials,
    server_credentials,
    version_of,
)
from tests.fakes.certificates import Certificates


@pytest.fixture
def files(tmp_path: Path) -> certificate_authority.KeyPair:
    now = datetime.datetime.now(datetime.UTC)
    return certificate_authority.issue(
        certificate_authority.ensure_authority(tmp_path, now=now), "node", role="proxy", now=now
    )


async def check_health(server_tls: TLSFiles, client_tls: TLSFiles) -> int:
    """Check the health of a server over TLS, and return the status."""
    server = grpc.aio.server(options=channels.server_options())
    HealthServicer(ProcessHealth(1.0)).add_to(server)
    port = channels.add_port(server, "127.0.0.1:0", server_tls)
    await server.start()
    try:
        async with channels.open_channel(f"127.0.0.1:{port}", client_tls) as channel:
            response = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=30
            )
            return int(response.status)
    finally:
        await server.stop(0)


async def test_server_certificate_of_a_trusted_ca_is_accepted(files: certificate_authority.KeyPair) -> None:
    assert await check_health(TLSFiles(files.certificate, files.key), TLSFiles(authority=files.ca)) == 2


async def test_client_certificate_is_accepted(files: certificate_authority.KeyPair) -> None:
    """With a CA the server requires a certificate; the server name is checked, too."""
    server = TLSFiles(files.certificate, files.key, files.ca)
    assert await check_health(server, TLSFiles(files.certificate, files.key, files.ca, SERVER_NAME)) == 2


async def test_client_without_a_certificate_is_refused(files: certificate_authority.KeyPair) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check_health(TLSFiles(files.certificate, files.key, files.ca), TLSFiles(authority=files.ca))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("files_", "error"),
    [
        (TLSFiles(certificate=Path("/nowhere/x.crt")), "set both --tls-cert and --tls-key, or neither"),
        (TLSFiles(Path("/nowhere/x.crt"), Path("/nowhere/x.key")), "cannot read"),
    ],
)
def test_unreadable_tls_files_are_refused(files_: TLSFiles, error: str) -> None:
    """The error names the file."""
    with pytest.raises(TLSError, match=error):
        channel_credentials(files_)


def test_invalid_tls_files_are_refused(files: certificate_authority.KeyPair, tmp_path: Path) -> None:
    """Invalid PEM and keys of other certificates are reported before any handshake."""
    now = datetime.datetime.now(datetime.UTC)
    other_pair = certificate_authority.issue(
        certificate_authority.ensure_authority(tmp_path, now=now), "other", role="proxy", now=now
    )
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no key at all")
    encrypted_key = tmp_path / "encrypted.key"
    encrypted_key.write_bytes(
        serialization.load_pem_private_key(files.key.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    for invalid_files, message in (
        (TLSFiles(garbage, garbage), f"cannot use certificate {garbage}: not a PEM certificate"),
        (TLSFiles(files.key, files.key), f"cannot use certificate {files.key}: not a PEM certificate"),
        (TLSFiles(files.certificate, garbage), f"cannot use key {garbage}: not a PEM private key"),
        (TLSFiles(files.certificate, files.ca), f"cannot use key {files.ca}: not a PEM private key"),
        (
            TLSFiles(files.certificate, encrypted_key),
            f"cannot use key {encrypted_key}: it is encrypted. Use ",
        ),
        (TLSFiles(files.certificate, other_pair.key), f"{other_pair.key}: key values mismatch"),
        (TLSFiles(files.certificate, files.key, garbage), f"cannot use CA {garbage}: not a PEM certificate"),
    ):
        for create in (
            channel_credentials,
            server_credentials,
            create_client_tls_context,
            create_server_tls_context,
        ):
            with pytest.raises(TLSError, match=re.escape(message)):
                create(invalid_files)


def test_server_needs_a_key(files: certificate_authority.KeyPair) -> None:
    with pytest.raises(TLSError, match="certificate and its key"):
        server_credentials(TLSFiles(authority=files.ca))


def test_server_name_of_a_role() -> None:
    """The role's name is expected unless another name is set; auths may have their own."""
    files = TLSFiles(server_name="proxy.example", auth_name="auth.example")

    assert TLSFiles().for_role("proxy").server_name == "proxy.refloat.local"
    assert TLSFiles().for_role("auth").server_name == "auth.refloat.local"
    assert files.for_role("auth").server_name == "auth.example"
    assert files.for_role("proxy").server_name == "proxy.example"
    assert TLSFiles(server_name="x").for_role("auth").server_name == "x"


@pytest.mark.parametrize(
    ("role", "name", "code"),
    [
        ("agent", "", grpc.StatusCode.UNAVAILABLE),
        ("console", SERVER_NAME, grpc.StatusCode.UNAVAILABLE),
        ("proxy", AUTH_SERVER_NAME, grpc.StatusCode.UNAVAILABLE),
        ("auth", AUTH_SERVER_NAME, None),
        ("auth", "teleport.cluster.local", None),
        ("proxy", "64656661756c74.teleport.cluster.local", None),
    ],
)
async def test_server_role_is_checked_by_the_handshake(
    tmp_path: Path, role: str, name: str, code: grpc.StatusCode | None
) -> None:
    """gRPC refuses servers with the certificate of a client or of another role."""
    server_files = Certificates(tmp_path).of("node", role)
    client_files = TLSFiles(authority=server_files.authority, server_name=name)
    if code is None:
        assert await check_health(TLSFiles(server_files.certificate, server_files.key), client_files) == 2
        return
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check_health(TLSFiles(server_files.certificate, server_files.key), client_files)
    assert caught.value.code() is code


def test_version_changes_with_the_files(tmp_path: Path) -> None:
    """Also when a file gets another content of the same size, or appears."""
    ca, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    ca.write_text("one")
    files = TLSFiles(key=key, authority=ca)
    versions = [version_of(files)]
    assert version_of(TLSFiles(key=key, authority=ca)) == versions[0]
    replacement = tmp_path / "new.pem"
    replacement.write_text("two")
    replacement.rename(ca)
    versions.append(version_of(files))
    key.write_text("key")
    versions += [version_of(files), version_of(files.for_role("auth")), version_of(None)]
    assert len(set(versions)) == len(versions)


def test_files_with_a_problem_open_no_connection() -> None:
    with pytest.raises(TLSError, match="upload them again"):
        channels.open_channel("127.0.0.1:1", TLSFiles(problem="upload them again"))
