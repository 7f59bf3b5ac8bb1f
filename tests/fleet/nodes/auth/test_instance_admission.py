"""Who may write resources by the HTTP part of the auth API."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import json_format

from fleet.nodes.auth.http import AuthHTTP
from fleet.nodes.auth.instance_admission import WRITERS, identity_refusal_of, refusal_of, resource_refusal_of
from fleet.nodes.shared import flags
from fleet.nodes.shared.instance import Instance
from fleet.transport.backend import Kind
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
        ("a call of tomorrow", set()),
    ],
)
def test_each_call_has_its_roles(call: str, roles: set[str]) -> None:
    """A certificate of any other role is refused, on loopback too, and the flag for anybody changes nothing."""
    for role in ROLES:
        caller = Caller(role, ("x",))
        assert (refusal_of(call, caller, "127.0.0.1", allow_anonymous=False) == "") is (role in roles)
        assert (refusal_of(call, caller, "10.0.0.1", allow_anonymous=True) == "") is (role in roles)


def test_callers_without_a_certificate_write_on_loopback() -> None:
    """Off loopback only where a flag says so."""
    assert refusal_of("UpsertProxy", None, "127.0.0.1", allow_anonymous=False) == ""
    assert refusal_of("UpsertProxy", None, "10.0.0.1", allow_anonymous=True) == ""
    assert refusal_of("UpsertProxy", None, "10.0.0.1", allow_anonymous=False) == (
        "not allowed: on an address other than loopback, a client needs a certificate with the role "
        "'proxy' to call UpsertProxy"
    )


async def test_every_call_that_writes_has_its_roles(plane: Plane) -> None:
    """A call that is added without them is refused to everybody with a certificate, and this test names it."""
    instance = Instance("auth", plane.instance_flags("auth", "auth-1"))
    plane.adopt(instance)
    routes = AuthHTTP(instance, "127.0.0.1")._routes
    assert {route.name for route in routes if route.method != "GET"} == set(WRITERS)


@pytest.mark.parametrize("kind", ["auth", "proxy"])
def test_certificate_is_bound_to_the_instance(kind: Kind) -> None:
    """By its id, or by the name that the id is made from; a name that all servers have proves nobody."""
    own = flags.host_id("main", kind, "one-1")
    assert identity_refusal_of(Caller(kind, ("one-1",)), kind, own, "main") == ""
    assert identity_refusal_of(Caller(kind, (own,)), kind, own, "main") == ""
    assert (
        identity_refusal_of(Caller(kind, ("one-1",)), kind, own, "other")
        == f"the certificate is for one-1, not for {kind} {own}"
    )
    assert identity_refusal_of(Caller(kind, ("one-2", SERVER_NAME)), kind, own, "main") != ""
    assert identity_refusal_of(Caller(kind, (SERVER_NAME,)), kind, SERVER_NAME, "main") == (
        f"the certificate is for no name, not for {kind} {SERVER_NAME}"
    )
    assert identity_refusal_of(Caller("console", ("console",)), kind, own, "main") == ""
    assert identity_refusal_of(None, kind, own, "main") == ""


@pytest.mark.parametrize("kind", ["auth", "proxy"])
def test_certificate_is_bound_to_the_name_of_the_instance(kind: Kind) -> None:
    """People choose instances by name: none may be listed by that of another one."""
    own, other = flags.host_id("main", kind, "one-1"), flags.host_id("main", kind, "one-2")
    by_name, by_id = Caller(kind, ("one-1",)), Caller(kind, (own,))
    for hostname in ("", "one-1", own):
        assert identity_refusal_of(by_name, kind, own, "main", hostname) == ""
        assert identity_refusal_of(by_id, kind, own, "main", hostname) == ""
    for hostname in ("one-2", "One-1", other, SERVER_NAME):
        assert identity_refusal_of(by_id, kind, own, "main", hostname) != ""
        assert (
            identity_refusal_of(by_name, kind, own, "main", hostname)
            == f"the certificate is for one-1, not for the name {hostname} of {kind} {own}"
        )
    assert identity_refusal_of(Caller(kind, (own, "edge")), kind, own, "main", "edge") == ""
    assert identity_refusal_of(None, kind, own, "main", "one-2") == ""


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
def test_resource_with_texts_that_nobody_can_read(server: dict[str, Any], field: str) -> None:
    """Every auth, proxy and console keeps them: one certificate must not fill their lists."""
    assert resource_refusal_of(json_format.ParseDict(server, types_pb2.ServerV2())).startswith(field)


def test_resource_of_a_usual_instance() -> None:
    """The longest texts that are taken."""
    labels = {f"l{count}": "x" * 256 for count in range(64)}
    server = {"metadata": {"labels": labels}, "spec": {"hostname": "n" * 256, "version": "18.0.0"}}
    assert resource_refusal_of(json_format.ParseDict(server, types_pb2.ServerV2())) == ""
