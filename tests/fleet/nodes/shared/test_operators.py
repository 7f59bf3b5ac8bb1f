"""Who may make operators' calls, by real certificates: tests of the calls have the rest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor

from fleet.nodes.shared import operators
from fleet.wire import (
    agent_status_pb2,
    clusterconfig_pb2,
    fleet_pb2,
    grpcclientconfig_pb2,
    presence_pb2,
    tunnel_pb2,
)
from tests.fakes.certificates import Certificates, channel_with
from tests.fakes.plane import Plane

_WIRE = (
    agent_status_pb2,
    clusterconfig_pb2,
    fleet_pb2,
    grpcclientconfig_pb2,
    presence_pb2,
    tunnel_pb2,
)
#: Calls that change nothing.
_READS = frozenset(
    {
        "AgentFeed/ListAgents",
        "AgentStatus/ReadAgentStatus",
        "ClusterConfigService/GetClusterNetworkingConfig",
        "NodePolicies/GetPolicies",
        "PresenceService/ListAuthServers",
        "PresenceService/ListProxyServers",
        "ServiceConfigDiscoveryService/GetServiceConfig",
        "TunnelFeed/ListTunnels",
    }
)
#: Calls of agents, whom `agent_admission` binds to their certificates.
_CALLS_OF_AGENTS = frozenset(
    {
        "HeartbeatService/Deregister",
        "HeartbeatService/Heartbeat",
        "Tunnel/Register",
        "Tunnel/Tunnel",
        "TunnelControl/Control",
    }
)
#: Calls of operators, by the kinds of node that serve them.
_OF_BOTH = ("InstanceAdmin/SetStanding", "NodePolicies/Restart", "NodePolicies/SetPolicies")
_CALLS_OF_OPERATORS = {
    "auth": (
        "ClusterConfigService/ResetClusterNetworkingConfig",
        "ClusterConfigService/UpdateClusterNetworkingConfig",
        "ClusterConfigService/UpsertClusterNetworkingConfig",
        *_OF_BOTH,
    ),
    "proxy": ("TunnelAdmin/AdviseAuthReconnect", "TunnelAdmin/AdviseReconnect", *_OF_BOTH),
}


def _methods() -> Iterator[tuple[str, MethodDescriptor]]:
    """Yield every method of our wire format, as SERVICE/METHOD."""
    for module in _WIRE:
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield f"{service.name}/{method.name}", method


async def _status(channel: grpc.aio.Channel, method: MethodDescriptor) -> grpc.StatusCode:
    """Make a call with an empty request, and return how it ended."""
    request = message_factory.GetMessageClass(method.input_type)()
    path = f"/{method.containing_service.full_name}/{method.name}"
    call: Any = channel.unary_unary(path)(request.SerializeToString(), timeout=30)
    code: grpc.StatusCode = await call.code()
    return code


def test_every_call_is_a_read_or_has_its_roles() -> None:
    """A method that is new fails here until somebody says who may call it."""
    of_operators = {name for names in _CALLS_OF_OPERATORS.values() for name in names}
    assert {name for name, _ in _methods()} == _READS | _CALLS_OF_AGENTS | of_operators


async def test_calls_of_operators_are_refused_to_everybody_else(plane: Plane, tmp_path: Path) -> None:
    """Over mutual TLS, before anything of the request is read; the console's certificate comes further."""
    certificates, methods = Certificates(tmp_path), dict(_methods())
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    proxy = await plane.proxy(tls=certificates.of("proxy-1", "proxy"))
    addresses = {"auth": auth.instance.grpc_address, "proxy": proxy.instance.grpc_address}
    refused: dict[str, set[str]] = {}
    async with AsyncExitStack() as stack:
        for role in ("", "agent", "auth", "proxy", "gateway", "new", "console"):
            files = certificates.of("name", role)
            for kind, address in addresses.items():
                channel = await stack.enter_async_context(channel_with(address, files))
                for name in _CALLS_OF_OPERATORS[kind]:
                    code = await _status(channel, methods[name])
                    if code is grpc.StatusCode.PERMISSION_DENIED:
                        refused.setdefault(role, set()).add(f"{kind} {name}")
    everything = {f"{kind} {name}" for kind, names in _CALLS_OF_OPERATORS.items() for name in names}
    assert refused == dict.fromkeys(("", "agent", "auth", "proxy", "gateway", "new"), everything)


class Caller:
    """A call's context with, or without, a certificate of a role."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, role: str | None) -> None:
        monkeypatch.setattr(operators.peers, "role_of", lambda _: role)
        self.refused: tuple[grpc.StatusCode, str] | None = None

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.refused = code, details


@pytest.mark.parametrize(
    ("role", "refused"),
    [
        (None, False),
        ("console", False),
        *((role, True) for role in ("", "agent", "proxy", "auth", "gateway", "operator", "Console", "new")),
    ],
)
async def test_operators_are_none_of_the_fleet(
    monkeypatch: pytest.MonkeyPatch, role: str | None, refused: bool
) -> None:
    """A certificate that is stolen from a node moves nothing, and neither does one of a role nobody listed."""
    caller: Any = Caller(monkeypatch, role)
    await operators.require_operator(caller, "drain instances", "127.0.0.1")
    assert (caller.refused is not None) == refused
    if refused:
        assert caller.refused[0] is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("role", "host", "allowed"),
    [
        (None, "::1", True),
        (None, "localhost", True),
        ("operator", "127.0.0.1", False),
        ("console", "0.0.0.0", True),
        (None, "0.0.0.0", False),
        ("", "0.0.0.0", False),
        ("operator", "10.0.0.1", False),
        ("auth", "0.0.0.0", False),
    ],
)
def test_off_loopback_the_console_alone(role: str | None, host: str, allowed: bool) -> None:
    """Everybody who reaches a port of the network could ask otherwise."""
    assert (operators.refusal_of(role, "drain it", host) == "") is allowed


def test_anybody_is_for_callers_without_a_certificate() -> None:
    """The flag opens a port that asks for no certificates; it does not make an agent an operator."""
    assert operators.refusal_of(None, "write", "0.0.0.0", allow_anonymous=True) == ""
    assert operators.refusal_of("agent", "write", "127.0.0.1", allow_anonymous=True) != ""


def test_sentence_names_the_roles() -> None:
    """The caller learns which certificate would do."""
    roles = {"proxy", "auth"}
    assert operators.refusal_of("", "write", "::1", roles) == (
        "not allowed: a client needs a certificate with the role 'auth' or 'proxy' to write; this one has no role"
    )
    assert operators.refusal_of(None, "write", "::", roles) == (
        "not allowed: on an address other than loopback, a client needs a certificate with the role "
        "'auth' or 'proxy' to write"
    )


async def test_reason_that_cannot_be_shown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The field is named."""
    caller: Any = Caller(monkeypatch, None)
    await operators.require_reason(caller, "kernel update")
    assert caller.refused is None
    await operators.require_reason(caller, "two\nlines")
    assert caller.refused[0] is grpc.StatusCode.INVALID_ARGUMENT
