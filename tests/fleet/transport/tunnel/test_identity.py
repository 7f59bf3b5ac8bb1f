"""Identity of clients by their certificates, on real mutual TLS: targets they may register, and reconnects."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import grpc.aio
import pytest

from fleet.nodes.tunnel.flags import make_claims_rule
from fleet.protocol.tunnel.messages import Op as TargetOp
from fleet.protocol.tunnel.messages import Registration, Target, WireVersion
from fleet.transport import certificate_authority, channels
from fleet.transport.tls import TLSFiles
from fleet.transport.tunnel import codec, options
from fleet.transport.tunnel.server import TunnelServer
from tests.fakes.tunnel import REGISTER, SSH, TUNNEL, Ground, echo, failure_of, refusing, still_works, taking


class Certificates:
    """Certificates of one authority, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, name: str) -> TLSFiles:
        now = datetime.now(UTC)
        ca, role = (
            certificate_authority.ensure_authority(self._folder, now=now),
            "proxy" if name == "server" else "t",
        )
        keys = certificate_authority.issue(ca, name, role=role, now=now)
        return TLSFiles(keys.certificate, keys.key, keys.ca)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """Issued on demand."""
    return Certificates(tmp_path)


async def start_server(ground: Ground, tunnel: TunnelServer, certificates: Certificates) -> str:
    return await ground.server(tunnel, tls=certificates.of("server"))


async def test_certificate_binds_the_targets_it_names(ground: Ground, certificates: Certificates) -> None:
    """A client may register the target that its certificate names, and no other one."""
    tunnel = TunnelServer(may_claim=make_claims_rule([]))
    address = await start_server(ground, tunnel, certificates)
    channel = ground.channel(address, tls=certificates.of("router-7"))
    client = await ground.client("", SSH, Target("router-8", "SSH"), channel=channel, handler=taking(echo))
    assert set(tunnel.targets()) == {SSH}
    assert "may not be registered by router-7" in client.client.rejected_targets[Target("router-8", "SSH")]
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()


async def test_reconnect_with_the_same_certificate_displaces_the_stale_target(
    ground: Ground, certificates: Certificates
) -> None:
    """The first connection still exists, as after a restart of the host: the second gets the target at once."""
    tunnel = TunnelServer()
    address = await start_server(ground, tunnel, certificates)
    files = certificates.of("router-7")
    for handler in (refusing("stale"), taking(echo)):
        channel = ground.channel(address, tls=files)
        tunnel_client = await ground.client("", SSH, channel=channel, handler=handler)
        assert not tunnel_client.client.rejected_targets
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()


async def test_another_certificate_does_not_displace_a_target(
    ground: Ground, certificates: Certificates
) -> None:
    """The same name and a higher generation in the metadata prove nothing."""
    tunnel = TunnelServer()
    address = await start_server(ground, tunnel, certificates)
    refusals = []
    for generation, name in enumerate(("router-7", "router-8")):
        channel = ground.channel(address, tls=certificates.of(name))
        tunnel_client = await ground.client(
            "", SSH, channel=channel, handler=taking(echo), name="router-7", generation=generation
        )
        refusals.append(tunnel_client.client.rejected_targets.get(SSH, ""))
    assert refusals == ["", f"target {SSH} is already registered by another client"]


async def test_token_is_valid_for_its_certificate_only(ground: Ground, certificates: Certificates) -> None:
    """A client with another's token cannot open its sessions."""
    tunnel = TunnelServer()
    address = await start_server(ground, tunnel, certificates)
    own_register = ground.raw(ground.channel(address, tls=certificates.of("router-7")), REGISTER)
    await own_register.write(codec.encode(WireVersion.V0_2, Registration(TargetOp.ADD, SSH)))
    await own_register.read()
    token = dict(await own_register.initial_metadata())["x-refloat-connection"]
    other_tunnel = ground.raw(
        ground.channel(address, tls=certificates.of("router-8")), TUNNEL, ("x-refloat-connection", token)
    )
    await other_tunnel.write(codec.first_message(1))
    code, details = await failure_of(other_tunnel)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "this connection has no Register stream" in details


async def test_client_without_a_certificate_is_refused(ground: Ground, certificates: Certificates) -> None:
    address = await start_server(ground, TunnelServer(), certificates)
    anonymous_channel = channels.open_channel(
        address, TLSFiles(authority=certificates.of("x").authority), extra_options=options.channel_options()
    )
    async with anonymous_channel:
        call = ground.raw(anonymous_channel, REGISTER)
        assert (await failure_of(call))[0] is grpc.StatusCode.UNAVAILABLE
