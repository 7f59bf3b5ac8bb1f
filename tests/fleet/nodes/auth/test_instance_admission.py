"""Which certificates may write resources through the HTTP part of the auth API."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import json_format

from fleet.nodes.auth.http import AuthHTTP
from fleet.nodes.auth.instance_admission import (
    WRITER_ROLES,
    call_refusal_of,
    identity_refusal_of,
    resource_refusal_of,
)
from fleet.nodes.shared import flags
from fleet.nodes.shared.instance import Instance
from fleet.transport.backend import AuthOrProxy
from fleet.transport.peers import Caller
from fleet.transport.tls import SERVER_NAME
from fleet.wire import types_pb2
from tests.fakes.plane import Plane

ROLES = ("agent", "auth", "console", "gateway", "proxy", "")


@pytest.mark.parametrize(
    ("call", "roles"),
    [
        ("UpsertProxy", {"proxy"}),
        ("DeleteProxy", {"proxy", "console"}),
        ("DeleteAllProxies", {"console"}),
        ("UpsertAuthServer", {"auth"}),
        ("UpsertTunnelConnection", {"auth", "proxy", "console"}),
        ("an unknown call", set()),
    ],
)
def test_call_is_allowed_to_its_roles_only(call: str, roles: set[str]) -> None:
    """Certificates of other roles are refused, also on loopback and with the flag for anonymous clients."""
    for role in ROLES:
        caller = Caller(role, ("x",))
        assert (call_refusal_of(call, caller, "127.0.0.1", allow_anonymous=False) == "") is (role in roles)
        assert (call_refusal_of(call, caller, "10.0.0.1", allow_anonymous=True) == "") is (role in roles)


def test_caller_without_certificate_writes_on_loopback_only() -> None:
    """On other addresses the caller needs a certificate, unless the flag allows anonymous clients."""
    assert call_refusal_of("UpsertProxy", None, "127.0.0.1", allow_anonymous=False) == ""
    assert call_refusal_of("UpsertProxy", None, "10.0.0.1", allow_anonymous=True) == ""
    assert call_refusal_of("UpsertProxy", None, "10.0.0.1", allow_anonymous=False) == (
        "not allowed: on an address other than loopback, a client needs a certificate with the role "
        "'proxy' to call UpsertProxy"
    )


async def test_every_write_call_has_roles(plane: Plane) -> None:
    """A new call without roles would be refused to every certificate."""
    instance = Instance("auth", plane.instance_flags("auth", "auth-1"))
    plane.adopt(instance)
    routes = AuthHTTP(instance, "127.0.0.1")._routes
    assert {route.call for route in routes if route.method != "GET"} == set(WRITER_ROLES)


@pytest.mark.parametrize("kind", ["auth", "proxy"])
def test_certificate_is_valid_for_the_id_of_its_instance(kind: AuthOrProxy) -> None:
    """The certificate has the id, or the name that the id is made from; the name of all servers proves no identity."""
    own_id = flags.host_id("main", kind, "one-1")
    assert identity_refusal_of(Caller(kind, ("one-1",)), kind, own_id, "main") == ""
    assert identity_refusal_of(Caller(kind, (own_id,)), kind, own_id, "main") == ""
    assert (
        identity_refusal_of(Caller(kind, ("one-1",)), kind, own_id, "other")
        == f"the certificate is for one-1, not for {kind} {own_id}"
    )
    assert identity_refusal_of(Caller(kind, ("one-2", SERVER_NAME)), kind, own_id, "main") != ""
    assert identity_refusal_of(Caller(kind, (SERVER_NAME,)), kind, SERVER_NAME, "main") == (
        f"the certificate is for no name, not for {kind} {SERVER_NAME}"
    )
    assert identity_refusal_of(Caller("console", ("console",)), kind, own_id, "main") == ""
    assert identity_refusal_of(None, kind, own_id, "main") == ""


@pytest.mark.parametrize("kind", ["auth", "proxy"])
def test_certificate_is_valid_for_the_host_name_of_its_instance(kind: AuthOrProxy) -> None:
    """Operators choose instances by name, so an instance must not use the name of another instance."""
    own_id, other_id = flags.host_id("main", kind, "one-1"), flags.host_id("main", kind, "one-2")
    by_name, by_id = Caller(kind, ("one-1",)), Caller(kind, (own_id,))
    for hostname in ("", "one-1", own_id):
        assert identity_refusal_of(by_name, kind, own_id, "main", hostname) == ""
        assert identity_refusal_of(by_id, kind, own_id, "main", hostname) == ""
    for hostname in ("one-2", "One-1", other_id, SERVER_NAME):
        assert identity_refusal_of(by_id, kind, own_id, "main", hostname) != ""
        assert (
            identity_refusal_of(by_name, kind, own_id, "main", hostname)
            == f"the certificate is for one-1, not for the name {hostname} of {kind} {own_id}"
        )
    assert identity_refusal_of(Caller(kind, (own_id, "edge")), kind, own_id, "main", "edge") == ""
    assert identity_refusal_of(None, kind, own_id, "main", "one-2") == ""


@pytest.mark.parametrize(
    ("server", "field"),
    [
        ({"spec": {"hostname": "n" * 257}}, "server.spec.hostname"),
        ({"spec": {"hostname": "\x1b[2Jproxy-1"}}, "server.spec.hostname"),
        ({"spec": {"hostname": "\u202eproxy-1"}}, "server.spec.hostname"),
        ({"spec": {"version": "1" * 257}}, "server.spec.version"),
        ({"metadata": {"labels": {"refloat.dev/group": "g" * 257}}}, "server.metadata.labels"),
        ({"metadata": {"labels": {"l" * 257: "x"}}}, "server.metadata.labels"),
        ({"metadata": {"labels": {f"l{count}": "" for count in range(65)}}}, "server.metadata.labels"),
    ],
)
def test_resource_with_unreadable_or_long_text_is_refused(server: dict[str, Any], field: str) -> None:
    """Every auth, proxy and console stores resources, so one certificate must not fill their lists."""
    assert resource_refusal_of(json_format.ParseDict(server, types_pb2.ServerV2())).startswith(field)


def test_resource_with_longest_allowed_texts_is_accepted() -> None:
    """Every text and the label count are at their limit."""
    labels = {f"l{count}": "x" * 256 for count in range(64)}
    server = {"metadata": {"labels": labels}, "spec": {"hostname": "n" * 256, "version": "18.0.0"}}
    assert resource_refusal_of(json_format.ParseDict(server, types_pb2.ServerV2())) == ""
