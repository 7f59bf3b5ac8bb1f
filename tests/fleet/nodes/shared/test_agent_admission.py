"""Which agents are admitted: by their certificate, and with texts of limited length."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.nodes.shared import agent_admission, flags
from fleet.transport.peers import Caller
from fleet.wire import fleet_pb2


def agent_id(name: str) -> str:
    return flags.host_id("default", "agent", name)


def identity_refusal(caller: Caller | None, name: str, identity: str = "") -> str:
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
def test_certificate_of_the_agent_is_accepted(names: tuple[str, ...]) -> None:
    """The certificate has the agent's name, a range of names, or the agent's id."""
    assert identity_refusal(Caller("agent", names), "agent-7") == ""


@pytest.mark.parametrize("names", [("agent-7",), ("refloat:agents:agent-1..6",), (agent_id("agent-7"),), ()])
def test_certificate_of_another_agent_is_refused(names: tuple[str, ...]) -> None:
    """Another name is refused, and so is the right name with the id of another agent."""
    assert "the certificate is for" in identity_refusal(Caller("agent", names), "agent-8")
    assert "the certificate is for" in identity_refusal(
        Caller("agent", ("agent-8",)), "agent-8", agent_id("agent-9")
    )


@pytest.mark.parametrize("name", ["localhost", "refloat.local", "teleport.cluster.local"])
def test_shared_names_are_no_agent_identity(name: str) -> None:
    """An agent cannot use a name that many certificates have."""
    assert "the certificate is for" in identity_refusal(Caller("agent", (name,)), name)


@pytest.mark.parametrize("role", ["", "auth", "proxy", "gateway", "console", "Agent"])
def test_certificate_of_another_role_is_refused(role: str) -> None:
    """The names in the certificate do not matter."""
    assert f"role {role!r}: agents need the role" in identity_refusal(Caller(role, ("agent-7",)), "agent-7")


def test_agent_without_certificate_is_accepted_without_tls() -> None:
    """A server that requires no certificates accepts every agent."""
    assert identity_refusal(None, "agent-7") == ""


def agent_resource(**fields: Any) -> fleet_pb2.AgentResource:
    return fleet_pb2.AgentResource(**{"agent_id": "a", "name": "a", "ttl_ms": 1000, **fields})


@pytest.mark.parametrize(
    ("fields", "message"),
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
def test_heartbeat_with_long_or_unprintable_text_is_refused(fields: dict[str, Any], message: str) -> None:
    """Each text has a limit, and so has the size of the whole resource."""
    assert message in agent_admission.heartbeat_refusal_of(agent_resource(**fields))


def test_every_text_field_of_a_heartbeat_has_a_limit() -> None:
    """A field that is added to the resource needs a limit as well: no text field passes with 257 characters."""
    for field in fleet_pb2.AgentResource.DESCRIPTOR.fields:
        for path, text in _resources_with_long_text(field):
            assert agent_admission.heartbeat_refusal_of(text), path


def _resources_with_long_text(field: Any) -> list[tuple[str, fleet_pb2.AgentResource]]:
    """Return the resource once for each text in or below a field, with that text too long."""
    long_text = "x" * 257
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return [
            (f"{field.name} key", agent_resource(**{field.name: {long_text: ""}})),
            (f"{field.name} value", agent_resource(**{field.name: {"k": long_text}})),
        ]
    if field.message_type is not None:
        text_fields = [part for part in field.message_type.fields if part.type == part.TYPE_STRING]
        return [
            (
                f"{field.name}.{part.name}",
                agent_resource(**{field.name: {part.name: [long_text] if part.is_repeated else long_text}}),
            )
            for part in text_fields
        ]
    return (
        [(field.name, agent_resource(**{field.name: long_text}))] if field.type == field.TYPE_STRING else []
    )


def test_heartbeat_with_4000_claims_is_accepted() -> None:
    """A mesh agent may have a tunnel to each of 4,000 proxies."""
    proxy_ids = [flags.host_id("default", "proxy", f"proxy-{number}") for number in range(4_000)]
    assert (
        agent_admission.heartbeat_refusal_of(
            agent_resource(tracker={"claimed": proxy_ids}, labels={"a": "b"})
        )
        == ""
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"agent_id": ""}, "a hello with an agent_id of 1 to 128"),
        ({"agent_id": "a" * 129}, "a hello with an agent_id of 1 to 128"),
        ({"name": "a" * 257}, "name is longer than 256"),
        ({"version": "a" * 257}, "version is longer than 256"),
    ],
)
def test_hello_with_long_text_is_refused(fields: dict[str, Any], message: str) -> None:
    """A proxy has the same limits as an auth."""
    hello = fleet_pb2.AgentHello(**{"agent_id": "a", "name": "a", **fields})
    assert message in agent_admission.hello_refusal_of(hello)
    assert agent_admission.hello_refusal_of(fleet_pb2.AgentHello(agent_id="a", name="a", version="1")) == ""
