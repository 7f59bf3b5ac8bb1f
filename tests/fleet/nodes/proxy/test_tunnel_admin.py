"""Requests to a proxy to advise its agents."""

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


def advise_request(advisory_id: str = "x", **fields: Any) -> fleet_pb2.AdviseReconnectRequest:
    return fleet_pb2.AdviseReconnectRequest(advisory_id=advisory_id, **fields)


async def test_requested_advisories_are_counted(plane: Plane, agents: Agents) -> None:
    """The same id advises no agent twice."""
    proxy = await plane.proxy(ttl=600.0)
    first = await agents.connect(proxy, "a")
    await agents.connect(proxy, "b")
    async with channel_to(proxy.instance.grpc_address) as channel:
        stub = fleet_pb2_grpc.TunnelAdminStub(channel)
        response = await stub.AdviseReconnect(advise_request(reason="make room", limit=1), timeout=30)
        assert (response.proxy_id, response.advised_count, response.remaining_count) == (
            proxy.instance.flags.id,
            1,
            1,
        )
        response = await stub.AdviseReconnect(advise_request(), timeout=30)
        assert (response.advised_count, response.already_advised_count, response.remaining_count) == (1, 1, 0)
        response = await stub.AdviseReconnect(advise_request(agent_ids=["a", "gone"]), timeout=30)
        assert (response.advised_count, response.already_advised_count, response.absent_count) == (0, 1, 1)
    while not (frame := await first.read()).HasField("reconnect_advisory"):
        pass
    assert frame.reconnect_advisory.reason == "make room"


async def test_auth_advisory_reaches_agents_and_returns_their_replies(plane: Plane, agents: Agents) -> None:
    """A dry run returns the replies of the agents."""
    proxy = await plane.proxy(ttl=600.0)
    agent = await agents.connect(proxy, "a")
    auth_request = fleet_pb2.AdviseAuthReconnectRequest(
        advisory_id="x", reason="it is unhealthy", leave_auth_id="auth-1"
    )
    async with channel_to(proxy.instance.grpc_address) as channel:
        stub = fleet_pb2_grpc.TunnelAdminStub(channel)
        response = await stub.AdviseAuthReconnect(auth_request, timeout=30)
        assert (response.proxy_id, response.advised_count) == (proxy.instance.flags.id, 1)
        while not (frame := await agent.read()).HasField("auth_reconnect_advisory"):
            pass
        assert frame.auth_reconnect_advisory == fleet_pb2.AuthReconnectAdvisory(
            advisory_id="x", reason="it is unhealthy", leave_auth_id="auth-1"
        )
        outcome = fleet_pb2.AuthAdvisoryReply.OUTCOME_STAYED
        reply = fleet_pb2.AuthAdvisoryReply(
            advisory_id="x", outcome=outcome, auth_id="auth-1", reason="no other"
        )
        await agent.send(auth_advisory_reply=reply)
        auth_request.dry_run = True

        async def has_reply() -> bool:
            response = await stub.AdviseAuthReconnect(auth_request, timeout=30)
            return dict(response.staying_reasons) == {"a": "no other"} and list(response.staying_ids) == ["a"]

        await eventually(has_reply)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"advisory_id": ""}, "advisory_id"),
        ({"reason": "two\nlines"}, "reason"),
        ({"leave_auth_id": "x" * 129}, "leave_auth_id"),
    ],
)
async def test_invalid_auth_advisory_request_names_the_field(
    plane: Plane, fields: dict[str, Any], message: str
) -> None:
    """The status is INVALID_ARGUMENT."""
    proxy = await plane.proxy(ttl=600.0)
    auth_request = fleet_pb2.AdviseAuthReconnectRequest(**{"advisory_id": "x", **fields})
    async with channel_to(proxy.instance.grpc_address) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match=message) as caught:
            await fleet_pb2_grpc.TunnelAdminStub(channel).AdviseAuthReconnect(auth_request, timeout=30)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("invalid_request", "message"),
    [
        (advise_request(""), "advisory_id"),
        (advise_request("x" * 129), "advisory_id"),
        (advise_request(reason="x" * 201), "reason"),
        (advise_request(reason="two\nlines"), "reason"),
    ],
)
async def test_invalid_advisory_request_names_the_field(
    plane: Plane, invalid_request: fleet_pb2.AdviseReconnectRequest, message: str
) -> None:
    """The status is INVALID_ARGUMENT."""
    proxy = await plane.proxy(ttl=600.0)
    async with channel_to(proxy.instance.grpc_address) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match=message) as caught:
            await fleet_pb2_grpc.TunnelAdminStub(channel).AdviseReconnect(invalid_request, timeout=30)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_only_console_certificate_may_advise(plane: Plane, tmp_path: Path) -> None:
    """With mutual TLS the certificates of the fleet's programs are refused."""
    now = datetime.datetime.now(datetime.UTC)
    ca = certificate_authority.ensure_authority(tmp_path, now=now)
    keys = {
        role: certificate_authority.issue(ca, f"{role}-x", role=role, now=now)
        for role in ("proxy", "agent", "auth", "console")
    }
    files = {role: TLSFiles(pair.certificate, pair.key, pair.ca) for role, pair in keys.items()}
    proxy = await plane.proxy(ttl=600.0, tls=files["proxy"])
    for role, is_allowed in (("agent", False), ("proxy", False), ("auth", False), ("console", True)):
        host, _, port = proxy.instance.grpc_address.rpartition(":")
        async with channels.open_channel(channels.target_of([(host, int(port))]), files[role]) as channel:
            stub = fleet_pb2_grpc.TunnelAdminStub(channel)
            auth_request = fleet_pb2.AdviseAuthReconnectRequest(advisory_id="x")
            for call in (
                stub.AdviseReconnect(advise_request(), timeout=30),
                stub.AdviseAuthReconnect(auth_request, timeout=30),
            ):
                if is_allowed:
                    assert (await call).advised_count == 0
                    continue
                with pytest.raises(grpc.aio.AioRpcError, match=role) as caught:
                    await call
                assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
