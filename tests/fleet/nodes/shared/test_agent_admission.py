"""Which agents are admitted: proven by their certificate, with texts of bounded length."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.nodes.shared import agent_admission, flags
from fleet.transport.peers import Caller
from fleet.wire import fleet_pb2


def agent_id(name: str) -> str:
    return flags.host_id("default", "agent", name)


def unproven(caller: Caller | None, name: str, identity: str = "") -> str:
    return agent_admission.identity_refusal_of(caller, identity or agent_id(name), name, "default")


@pytest.mark.parametrize(
    "names",
    [
        ("agent-7",),
        ("refloat.local", "localhost", "agent-7"),
        ("refloat:agents:agent-1..9",),
        (agent_id("agent-7"),),
    ],
)
def test_certificate_of_the_agent(names: tuple[str, ...]) -> None:
    """By its name, in a range of names, or by its id."""
    assert unproven(Caller("agent", names), "agent-7") == ""


@pytest.mark.parametrize("names", [("agent-7",), ("refloat:agents:agent-1..6",), (agent_id("agent-7"),), ()])
def test_certificate_of_another_agent(names: tuple[str, ...]) -> None:
    """Another name, and the right name with the id of another agent."""
    assert "the certificate is for" in unproven(Caller("agent", names), "agent-8")
    assert "the certificate is for" in unproven(Caller("agent", ("agent-8",)), "agent-8", agent_id("agent-9"))


@pytest.mark.parametrize("name", ["localhost", "refloat.local", "teleport.cluster.local"])
def test_names_that_many_certificates_share_prove_nothing(name: str) -> None:
    """An agent cannot take such a name for its own."""
    assert "the certificate is for" in unproven(Caller("agent", (name,)), name)


@pytest.mark.parametrize("role", ["", "auth", "proxy", "gateway", "console", "Agent"])
def test_certificates_of_other_roles(role: str) -> None:
    """None of them is an agent, whatever names it has."""
    assert f"role {role!r}: agents need the role" in unproven(Caller(role, ("agent-7",)), "agent-7")


def test_no_certificate() -> None:
    """A server that asks for no certificates takes every agent at its word."""
    assert unproven(None, "agent-7") == ""


def resource(**fields: Any) -> fleet_pb2.AgentResource:
    return fleet_pb2.AgentResource(**{"agent_id": "a", "name": "a", "ttl_ms": 1000, **fields})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"agent_id": ""}, "agent_id needs 1 to 128"),
        ({"agent_id": "a" * 129}, "agent_id needs 1 to 128"),
        ({"ttl_ms": 86_400_001}, "ttl_ms must be 1 to"),
        ({"name": "a" * 257}, "name is longer than 256 characters"),
        ({"name": "a" * 3_900_000}, "more than 262144 bytes"),
        ({"name": "agent\u202e7"}, "name contains unprintable characters"),
        ({"version": "v" * 257}, "version"),
        ({"via_proxy_id": "p" * 129}, "via_proxy_id"),
        ({"networking_revision": "r" * 257}, "networking_revision"),
        ({"policy": {"mode": "m" * 257}}, "policy.mode"),
        ({"policy": {"auth_id": "a" * 129}}, "policy.auth_id"),
        ({"tracker": {"claimed": ["p", "p" * 129]}}, "tracker.claimed"),
        ({"tracker": {"claimed": ["p" * 100] * 3_000}}, "more than 262144 bytes"),
        ({"labels": {"k" * 257: ""}}, "labels is longer than"),
        ({"labels": {"k": "v\n"}}, "labels contains unprintable"),
        ({"labels": {str(number): "" for number in range(65)}}, "labels: more than 64 labels"),
    ],
)
def test_heartbeat_with_texts_that_are_too_long(fields: dict[str, Any], why: str) -> None:
    """Each text has its limit, and so has the whole: what no field counts is counted there."""
    assert why in agent_admission.heartbeat_refusal_of(resource(**fields))


def test_every_text_of_a_heartbeat_has_a_limit() -> None:
    """A field that is added to the resource is checked too: no text of it passes with 257 characters."""
    for field in fleet_pb2.AgentResource.DESCRIPTOR.fields:
        for path, text in _with_long_text(field):
            assert agent_admission.heartbeat_refusal_of(text), path


def _with_long_text(field: Any) -> list[tuple[str, fleet_pb2.AgentResource]]:
    """Return the resource once for each text in or below a field, with that text too long."""
    long = "x" * 257
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return [
            (f"{field.name} key", resource(**{field.name: {long: ""}})),
            (f"{field.name} value", resource(**{field.name: {"k": long}})),
        ]
    if field.message_type is not None:
        below = [part for part in field.message_type.fields if part.type == part.TYPE_STRING]
        return [
            (
                f"{field.name}.{part.name}",
                resource(**{field.name: {part.name: [long] if part.is_repeated else long}}),
            )
            for part in below
        ]
    return [(field.name, resource(**{field.name: long}))] if field.type == field.TYPE_STRING else []


def test_heartbeat_of_an_agent_of_a_large_mesh() -> None:
    """A tunnel to each of 4,000 proxies fits."""
    claimed = [flags.host_id("default", "proxy", f"proxy-{number}") for number in range(4_000)]
    assert (
        agent_admission.heartbeat_refusal_of(resource(tracker={"claimed": claimed}, labels={"a": "b"})) == ""
    )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"agent_id": ""}, "a hello with an agent_id of 1 to 128"),
        ({"agent_id": "a" * 129}, "a hello with an agent_id of 1 to 128"),
        ({"name": "a" * 257}, "name is longer than 256"),
        ({"version": "a" * 257}, "version is longer than 256"),
    ],
)
def test_hello_with_texts_that_are_too_long(fields: dict[str, Any], why: str) -> None:
    """A proxy takes no more than an auth does."""
    hello = fleet_pb2.AgentHello(**{"agent_id": "a", "name": "a", **fields})
    assert why in agent_admission.hello_refusal_of(hello)
    assert agent_admission.hello_refusal_of(fleet_pb2.AgentHello(agent_id="a", name="a", version="1")) == ""
