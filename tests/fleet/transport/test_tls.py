from __future__ import annotations

import datetime
from pathlib import Path

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.transport import certificate_authority, channels
from fleet.transport.health import HealthServicer
from fleet.transport.process import ProcessHealth
from fleet.transport.tls import (
    AUTH_NAME,
    SERVER_NAME,
    TLSError,
    TLSFiles,
    channel_credentials,
    server_credentials,
)
from tests.fakes.certificates import Certificates


@pytest.fixture
def files(tmp_path: Path) -> certificate_authority.KeyPair:
    now = datetime.datetime.now(datetime.UTC)
    return certificate_authority.issue(
        certificate_authority.ensure_authority(tmp_path, now=now), "node", role="proxy", now=now
    )


async def check(server_tls: TLSFiles, client_tls: TLSFiles) -> int:
    """One health check over TLS; the status, or the error."""
    server = grpc.aio.server(options=channels.server_options())
    HealthServicer(ProcessHealth(1.0)).add_to(server)
    port = channels.add_port(server, "127.0.0.1:0", server_tls)
    await server.start()
    try:
        async with channels.open_channel(f"127.0.0.1:{port}", client_tls) as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=30
            )
            return int(answer.status)
    finally:
        await server.stop(0)


async def test_tls(files: certificate_authority.KeyPair) -> None:
    """A server with a certificate, a client that trusts its CA."""
    assert await check(TLSFiles(files.certificate, files.key), TLSFiles(authority=files.ca)) == 2


async def test_mutual_tls(files: certificate_authority.KeyPair) -> None:
    """With a CA the server demands a certificate: who has one gets in, under the name it expects."""
    server = TLSFiles(files.certificate, files.key, files.ca)
    assert await check(server, TLSFiles(files.certificate, files.key, files.ca, SERVER_NAME)) == 2


async def test_mutual_tls_without_a_certificate(files: certificate_authority.KeyPair) -> None:
    """Who has none does not get in."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(TLSFiles(files.certificate, files.key, files.ca), TLSFiles(authority=files.ca))
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("files_", "says"),
    [
        (TLSFiles(certificate=Path("/nowhere/x.crt")), "or neither"),
        (TLSFiles(Path("/nowhere/x.crt"), Path("/nowhere/x.key")), "cannot read"),
    ],
)
def test_tls_files_that_do_not_work(files_: TLSFiles, says: str) -> None:
    """A file that cannot be read is named."""
    with pytest.raises(TLSError, match=says):
        channel_credentials(files_)


def test_tls_files_that_are_none(files: certificate_authority.KeyPair, tmp_path: Path) -> None:
    """No PEM, or a certificate with another's key: told before anybody dials, not by handshakes that fail."""
    now = datetime.datetime.now(datetime.UTC)
    other = certificate_authority.issue(
        certificate_authority.ensure_authority(tmp_path, now=now), "other", role="proxy", now=now
    )
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no key at all")
    for wrong in (
        TLSFiles(garbage, garbage),
        TLSFiles(files.certificate, other.key),
        TLSFiles(files.certificate, files.key, garbage),
    ):
        for credentials in (channel_credentials, server_credentials):
            with pytest.raises(TLSError, match="cannot use"):
                credentials(wrong)


def test_tls_server_without_key(files: certificate_authority.KeyPair) -> None:
    """A server cannot do without."""
    with pytest.raises(TLSError, match="certificate and a key"):
        server_credentials(TLSFiles(authority=files.ca))


def test_tls_towards_a_role() -> None:
    """The name of the role is expected where no other name is given; an auth may have one of its own."""
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
        ("proxy", AUTH_NAME, grpc.StatusCode.UNAVAILABLE),
        ("auth", AUTH_NAME, None),
        ("auth", "teleport.cluster.local", None),
        ("proxy", "64656661756c74.teleport.cluster.local", None),
    ],
)
async def test_tls_of_a_server_by_its_role(
    tmp_path: Path, role: str, name: str, code: grpc.StatusCode | None
) -> None:
    """gRPC itself refuses a server that shows the certificate of a client, or of another role than is expected."""
    shown = Certificates(tmp_path).of("node", role)
    client = TLSFiles(authority=shown.authority, server_name=name)
    if code is None:
        assert await check(TLSFiles(shown.certificate, shown.key), client) == 2
        return
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(TLSFiles(shown.certificate, shown.key), client)
    assert caught.value.code() is code
