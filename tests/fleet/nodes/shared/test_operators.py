"""Which certificates may make operators' calls; the tests of the calls cover the rest."""

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

_WIRE_MODULES = (
    agent_status_pb2,
    clusterconfig_pb2,
    fleet_pb2,
    grpcclientconfig_pb2,
    presence_pb2,
    tunnel_pb2,
)
#: Calls that change nothing.
_READ_CALLS = frozenset(
    {
        "AgentFeed/ListAgents",
        "AgentStatus/ReadAgentStatus",
        "ClusterConfigService/GetClusterNetworkingConfig",
        "NodePolicies/GetPolicies",
        "PresenceService/ListAuthServers",
        "PresenceService/ListProxyServers",
        # Refused: Refloat has no leaf clusters.
        "PresenceService/ListRemoteClusters",
        "ServiceConfigDiscoveryService/GetServiceConfig",
        "TunnelFeed/ListTunnels",
    }
)
#: Calls of agents, which `agent_admission` checks against their certificates.
_CALLS_OF_AGENTS = frozenset(
    {
        "HeartbeatService/Deregister",
        "HeartbeatService/Heartbeat",
        "Tunnel/Register",
        "Tunnel/Tunnel",
        "TunnelControl/Control",
    }
)
#: Calls of operators, by the kinds of instances that serve them.
_CALLS_TO_BOTH = ("InstanceAdmin/SetDeclaredStatus", "NodePolicies/Restart", "NodePolicies/SetPolicies")
_CALLS_OF_OPERATORS = {
    "auth": (
        "ClusterConfigService/ResetClusterNetworkingConfig",
        "ClusterConfigService/UpdateClusterNetworkingConfig",
        "ClusterConfigService/UpsertClusterNetworkingConfig",
        *_CALLS_TO_BOTH,
    ),
    "proxy": ("TunnelAdmin/AdviseAuthReconnect", "TunnelAdmin/AdviseReconnect", *_CALLS_TO_BOTH),
}


def _wire_methods() -> Iterator[tuple[str, MethodDescriptor]]:
    """Yield every method of the wire format, as SERVICE/METHOD."""
    for module in _WIRE_MODULES:
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield f"{service.name}/{method.name}", method


async def _call_status(channel: grpc.aio.Channel, method: MethodDescriptor) -> grpc.StatusCode:
    """Make a call with an empty request, and return its status."""
    request = message_factory.GetMessageClass(method.input_type)()
    path = f"/{method.containing_service.full_name}/{method.name}"
    call: Any = channel.unary_unary(path)(request.SerializeToString(), timeout=30)
    code: grpc.StatusCode = await call.code()
    return code


def test_every_method_is_listed_with_its_callers() -> None:
    """A new method fails here until it is added to one of the lists."""
    operator_calls = {name for names in _CALLS_OF_OPERATORS.values() for name in names}
    assert {name for name, _ in _wire_methods()} == _READ_CALLS | _CALLS_OF_AGENTS | operator_calls


async def test_operator_calls_are_refused_to_all_roles_but_console(plane: Plane, tmp_path: Path) -> None:
    """With mutual TLS the refusal comes before the request is read."""
    certificates, methods = Certificates(tmp_path), dict(_wire_methods())
    auth = await plane.auth(tls=certificates.of("auth-1", "auth"))
    proxy = await plane.proxy(tls=certificates.of("proxy-1", "proxy"))
    addresses = {"auth": auth.instance.grpc_address, "proxy": proxy.instance.grpc_address}
    refused_calls: dict[str, set[str]] = {}
    async with AsyncExitStack() as stack:
        for role in ("", "agent", "auth", "proxy", "gateway", "new", "console"):
            files = certificates.of("name", role)
            for kind, address in addresses.items():
                channel = await stack.enter_async_context(channel_with(address, files))
                for name in _CALLS_OF_OPERATORS[kind]:
                    code = await _call_status(channel, methods[name])
                    if code is grpc.StatusCode.PERMISSION_DENIED:
                        refused_calls.setdefault(role, set()).add(f"{kind} {name}")
    all_calls = {f"{kind} {name}" for kind, names in _CALLS_OF_OPERATORS.items() for name in names}
    assert refused_calls == dict.fromkeys(("", "agent", "auth", "proxy", "gateway", "new"), all_calls)


class CallContext:
    """The context of a call with or without a certificate of a role."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, role: str | None) -> None:
        monkeypatch.setattr(operators.peers, "role_of", lambda _: role)
        self.refusal: tuple[grpc.StatusCode, str] | None = None

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.refusal = code, details


@pytest.mark.parametrize(
    ("role", "is_refused"),
    [
        (None, False),
        ("console", False),
        *((role, True) for role in ("", "agent", "proxy", "auth", "gateway", "operator", "Console", "new")),
    ],
)
async def test_certificates_of_instances_are_no_operators(
    monkeypatch: pytest.MonkeyPatch, role: str | None, is_refused: bool
) -> None:
    """A stolen certificate of an instance changes nothing, and neither does one with an unknown role."""
    context: Any = CallContext(monkeypatch, role)
    await operators.require_operator(context, "drain instances", "127.0.0.1")
    assert (context.refusal is not None) == is_refused
    if is_refused:
        assert context.refusal[0] is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("role", "host", "is_allowed"),
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
def test_only_console_is_operator_off_loopback(role: str | None, host: str, is_allowed: bool) -> None:
    """On other addresses everybody on the network could call."""
    assert (operators.refusal_of(role, "drain it", host) == "") is is_allowed


def test_allow_anonymous_applies_to_callers_without_certificate() -> None:
    """The flag does not make an agent an operator."""
    assert operators.refusal_of(None, "write", "0.0.0.0", allow_anonymous=True) == ""
    assert operators.refusal_of("agent", "write", "127.0.0.1", allow_anonymous=True) != ""


def test_refusal_names_the_allowed_roles() -> None:
    """The caller learns which certificate is needed."""
    roles = {"proxy", "auth"}
    assert operators.refusal_of("", "write", "::1", roles) == (
        "not allowed: a client needs a certificate with the role 'auth' or 'proxy' to write; this one has no role"
    )
    assert operators.refusal_of(None, "write", "::", roles) == (
        "not allowed: on an address other than loopback, a client needs a certificate with the role "
        "'auth' or 'proxy' to write"
    )


async def test_unprintable_reason_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status is INVALID_ARGUMENT."""
    context: Any = CallContext(monkeypatch, None)
    await operators.require_reason(context, "kernel update")
    assert context.refusal is None
    await operators.require_reason(context, "two\nlines")
    assert context.refusal[0] is grpc.StatusCode.INVALID_ARGUMENT
