"""Asking a proxy to send its agents elsewhere."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from fleet.transport import certificate_authority, channels
from fleet.transport.tls import TLSFiles
from fleet.wire import fleet_pb2, fleet_pb2_grpc
from tests.fakes.agents import Agents
from tests.fakes.plane import Plane, channel_to
from tests.fakes.waiting import eventually


def request(advisory_id: str = "x", **more: Any) -> fleet_pb2.AdviseReconnectRequest:
    return fleet_pb2.AdviseReconnectRequest(advisory_id=advisory_id, **more)


async def test_counts(plane: Plane, agents: Agents) -> None:
    """How many were advised; the same id again advises nobody."""
    proxy = await plane.proxy(ttl=600.0)
    first = await agents.connect(proxy, "a")
    await agents.connect(proxy, "b")
    async with channel_to(proxy.instance.grpc_address) as channel:
        stub = fleet_pb2_grpc.TunnelAdminStub(channel)
        answer = await stub.AdviseReconnect(request(reason="make room", limit=1), timeout=30)
        assert (answer.proxy_id, answer.advised, answer.left) == (proxy.instance.flags.id, 1, 1)
        answer = await stub.AdviseReconnect(request(), timeout=30)
        assert (answer.advised, answer.already, answer.left) == (1, 1, 0)
        answer = await stub.AdviseReconnect(request(agent_ids=["a", "gone"]), timeout=30)
        assert (answer.advised, answer.already, answer.absent) == (0, 1, 1)
    while not (frame := await first.read()).HasField("reconnect_advisory"):
        pass
    assert frame.reconnect_advisory.reason == "make room"


async def test_advice_to_connect_to_another_auth(plane: Plane, agents: Agents) -> None:
    """It goes to the agents through their tunnels, and what they answer is told to who looks."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    wanted = fleet_pb2.AdviseAuthReconnectRequest(
        advisory_id="x", reason="it is sick", leave_auth_id="auth-1"
    )
    async with channel_to(proxy.instance.grpc_address) as channel:
        stub = fleet_pb2_grpc.TunnelAdminStub(channel)
        answer = await stub.AdviseAuthReconnect(wanted, timeout=30)
        assert (answer.proxy_id, answer.advised) == (proxy.instance.flags.id, 1)
        while not (frame := await agent.read()).HasField("auth_reconnect_advisory"):
            pass
        assert frame.auth_reconnect_advisory == fleet_pb2.AuthReconnectAdvisory(
            advisory_id="x", reason="it is sick", leave_auth_id="auth-1"
        )
        stays = fleet_pb2.AuthAdvisoryReply.OUTCOME_STAYS
        reply = fleet_pb2.AuthAdvisoryReply(
            advisory_id="x", outcome=stays, auth_id="auth-1", reason="no other"
        )
        await agent.send(auth_advisory_reply=reply)
        wanted.look_only = True

        async def stayed() -> bool:
            seen = await stub.AdviseAuthReconnect(wanted, timeout=30)
            return dict(seen.staying_reasons) == {"a": "no other"} and list(seen.staying_ids) == ["a"]

        await eventually(stayed)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"advisory_id": ""}, "advisory_id"),
        ({"reason": "two\nlines"}, "reason"),
        ({"leave_auth_id": "x" * 129}, "leave_auth_id"),
    ],
)
async def test_refusals_of_auth_advice_name_the_field(plane: Plane, wrong: dict[str, Any], says: str) -> None:
    """What cannot be used is said by name."""
    proxy = await plane.proxy(ttl=600.0)
    sent = fleet_pb2.AdviseAuthReconnectRequest(**{"advisory_id": "x", **wrong})
    async with channel_to(proxy.instance.grpc_address) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match=says) as caught:
            await fleet_pb2_grpc.TunnelAdminStub(channel).AdviseAuthReconnect(sent, timeout=30)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (request(""), "advisory_id"),
        (request("x" * 129), "advisory_id"),
        (request(reason="x" * 201), "reason"),
        (request(reason="two\nlines"), "reason"),
    ],
)
async def test_refusals_name_the_field(
    plane: Plane, wrong: fleet_pb2.AdviseReconnectRequest, says: str
) -> None:
    """What cannot be used is said by name."""
    proxy = await plane.proxy(ttl=600.0)
    async with channel_to(proxy.instance.grpc_address) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match=says) as caught:
            await fleet_pb2_grpc.TunnelAdminStub(channel).AdviseReconnect(wrong, timeout=30)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_who_may_with_mutual_tls(plane: Plane, tmp_path: Path) -> None:
    """The console's certificate, not those of the fleet's own programs."""
    now = datetime.datetime.now(datetime.UTC)
    ca = certificate_authority.ensure_authority(tmp_path, now=now)
    keys = {
        role: certificate_authority.issue(ca, f"{role}-x", role=role, now=now)
        for role in ("proxy", "agent", "auth", "console")
    }
    files = {role: TLSFiles(pair.certificate, pair.key, pair.ca) for role, pair in keys.items()}
    proxy = await plane.proxy(ttl=600.0, tls=files["proxy"])
    for role, allowed in (("agent", False), ("proxy", False), ("auth", False), ("console", True)):
        host, _, port = proxy.instance.grpc_address.rpartition(":")
        async with channels.open_channel(channels.target_of([(host, int(port))]), files[role]) as channel:
            stub = fleet_pb2_grpc.TunnelAdminStub(channel)
            auth_request = fleet_pb2.AdviseAuthReconnectRequest(advisory_id="x")
            for call in (
                stub.AdviseReconnect(request(), timeout=30),
                stub.AdviseAuthReconnect(auth_request, timeout=30),
            ):
                if allowed:
                    assert (await call).advised == 0
                    continue
                with pytest.raises(grpc.aio.AioRpcError, match=role) as caught:
                    await call
                assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
