"""Who a client is by its certificate, on real mutual TLS: what it may register, and when it is itself come back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import grpc.aio
import pytest

from fleet.nodes.tunnel.flags import claims_rule
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
    """Made as they are wanted."""
    return Certificates(tmp_path)


async def serving(ground: Ground, tunnel: TunnelServer, certificates: Certificates) -> str:
    return await ground.server(tunnel, tls=certificates.of("server"))


async def test_certificate_binds_the_targets_it_names(ground: Ground, certificates: Certificates) -> None:
    """A client has the target that its certificate names, and not another's; both go on."""
    tunnel = TunnelServer(may_claim=claims_rule([]))
    address = await serving(ground, tunnel, certificates)
    channel = ground.channel(address, tls=certificates.of("router-7"))
    client = await ground.client("", SSH, Target("router-8", "SSH"), channel=channel, handler=taking(echo))
    assert set(tunnel.targets()) == {SSH}
    assert "may not be registered by router-7" in client.client.rejected_targets[Target("router-8", "SSH")]
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()


async def test_same_certificate_come_back_displaces_its_stale_target(
    ground: Ground, certificates: Certificates
) -> None:
    """The first connection is still there, as it is when a host restarts: the second has the target at once."""
    tunnel = TunnelServer()
    address = await serving(ground, tunnel, certificates)
    files = certificates.of("router-7")
    for handler in (refusing("stale"), taking(echo)):
        channel = ground.channel(address, tls=files)
        running = await ground.client("", SSH, channel=channel, handler=handler)
        assert not running.client.rejected_targets
    stream = await tunnel.open_session(SSH)
    await still_works(stream)
    await stream.close()


async def test_another_certificate_does_not_displace_a_target(
    ground: Ground, certificates: Certificates
) -> None:
    """Not even with the same name in metadata and a higher generation: those prove nothing."""
    tunnel = TunnelServer()
    address = await serving(ground, tunnel, certificates)
    refused = []
    for generation, name in enumerate(("router-7", "router-8")):
        channel = ground.channel(address, tls=certificates.of(name))
        running = await ground.client(
            "", SSH, channel=channel, handler=taking(echo), name="router-7", generation=generation
        )
        refused.append(running.client.rejected_targets.get(SSH, ""))
    assert refused == ["", f"target {SSH} is already registered by another client"]


async def test_word_of_a_register_stream_is_good_for_its_certificate_alone(
    ground: Ground, certificates: Certificates
) -> None:
    """Who overhears the token of another's Register stream cannot open its sessions."""
    tunnel = TunnelServer()
    address = await serving(ground, tunnel, certificates)
    mine = ground.raw(ground.channel(address, tls=certificates.of("router-7")), REGISTER)
    await mine.write(codec.encode(WireVersion.V0_2, Registration(TargetOp.ADD, SSH)))
    await mine.read()
    token = dict(await mine.initial_metadata())["x-refloat-connection"]
    other = ground.raw(
        ground.channel(address, tls=certificates.of("router-8")), TUNNEL, ("x-refloat-connection", token)
    )
    await other.write(codec.first_message(1))
    code, details = await failure_of(other)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "this connection has no Register stream" in details


async def test_client_without_a_certificate_is_not_let_in(ground: Ground, certificates: Certificates) -> None:
    """A server that demands certificates says nothing to who has none."""
    address = await serving(ground, TunnelServer(), certificates)
    nobody = channels.open_channel(
        address, TLSFiles(authority=certificates.of("x").authority), extra_options=options.channel_options()
    )
    async with nobody:
        call = ground.raw(nobody, REGISTER)
        assert (await failure_of(call))[0] is grpc.StatusCode.UNAVAILABLE
