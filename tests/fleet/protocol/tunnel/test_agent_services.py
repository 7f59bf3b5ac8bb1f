"""Names of services and targets, and which agent may claim them."""

from __future__ import annotations

import pytest

from fleet.protocol.tunnel import agent_services
from fleet.protocol.tunnel.agent_services import ServiceNameError
from fleet.protocol.tunnel.messages import Target
from fleet.protocol.tunnel.server_state import Peer


def id_of(name: str) -> str:
    return f"id-of-{name}"


@pytest.mark.parametrize("name", ["web", "a", "0", "ssh-2", "a" * 63])
def test_valid_service_name(name: str) -> None:
    """Lower-case DNS labels are valid."""
    assert agent_services.check_name(name) == name


@pytest.mark.parametrize("name", ["", "_status", "Web", "a.b", "-a", "a-", "a b", "a" * 64, "ä", "a\n"])
def test_invalid_service_name(name: str) -> None:
    """Names that are no host name label, or reserved, are refused."""
    with pytest.raises(ServiceNameError, match="is not a service name"):
        agent_services.check_name(name)


def test_target_round_trip() -> None:
    """An agent's id may contain dots, a service's name may not."""
    target = agent_services.target_of("web", "a.b")
    assert agent_services.split_target(target) == ("web", "a.b")


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target("web.me"), True),
        (Target("_status.me"), True),
        (Target("web.other"), False),
        (Target("_secret.me"), False),
        (Target("web.me", "SSH"), False),
        (Target("web"), False),
        (Target("web."), False),
        (Target(".me"), False),
    ],
)
def test_agent_claims_its_own_only(target: Target, expected: bool) -> None:
    """An agent may claim its own services and its status."""
    assert agent_services.may_claim(Peer(name="me"), target) is expected


def test_client_without_a_name_claims_nothing() -> None:
    assert not agent_services.may_claim(Peer(), Target("web."))
    assert not agent_services.may_claim(Peer(("me",)), Target("web.me"))


@pytest.mark.parametrize(
    ("identity", "agent_id", "name", "expected"),
    [
        (("some-id", "agent-1"), "some-id", "agent-1", True),
        (("some-id",), "some-id", "some-id", True),
        # The id alone proves no name: users address agents by name, too.
        (("some-id",), "some-id", "agent-1", False),
        (("agents-1", "refloat:agents:agent-1..3"), "agents-1", "agent-4", False),
        (("agents-1", "refloat:agents:agent-1..3"), "agents-1", "agent-3", True),
        (("some-id", "agent-1"), "other-id", "agent-1", False),
        ((id_of("agent-1"),), id_of("agent-1"), "agent-1", True),
        ((id_of("agent-1"),), id_of("agent-1"), "agent-2", False),
        (("agent-1",), id_of("agent-1"), "agent-1", True),
        # The name alone proves no id.
        (("agent-1",), id_of("agent-2"), "agent-1", False),
        (("agent-1",), id_of("agent-2"), "agent-2", False),
        (("refloat:agents:agent-1..3",), id_of("agent-3"), "agent-3", True),
        (("refloat:agents:agent-1..3",), id_of("agent-4"), "agent-4", False),
        (("refloat:agents:agent-1..3",), id_of("agent-02"), "agent-02", False),
        (("refloat:agents:agent-1..3",), id_of("other-2"), "other-2", False),
        (("refloat:agents:agent-1..3",), id_of("agent-2"), "agent-1", False),
        (("refloat:agents:agent-1..3",), id_of("agent"), "agent", False),
        (("refloat:agents:agent-1..x",), id_of("agent-1"), "agent-1", False),
        ((), id_of("agent-1"), "agent-1", False),
    ],
)
def test_certificate_proves_an_agent(
    identity: tuple[str, ...], agent_id: str, name: str, expected: bool
) -> None:
    """A certificate proves name and id, or one of them if the id is derived from the name."""
    assert agent_services.identity_matches(identity, agent_id, name, id_of) is expected


def test_range_name_proves_its_agents() -> None:
    """The range's name proves the first and the last agent, and not the next."""
    identity = (agent_services.range_uri("agent", 501, 500),)
    matches = [
        agent_services.identity_matches(identity, id_of(name), name, id_of)
        for name in ("agent-501", "agent-1000")
    ]
    assert matches == [True, True]
    assert not agent_services.identity_matches(identity, id_of("agent-1001"), "agent-1001", id_of)
