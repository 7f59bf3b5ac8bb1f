from __future__ import annotations

import pytest

from fleet.nodes.tunnel.flags import (
    LocalForward,
    Service,
    make_claims_rule,
    parse_claim,
    parse_forward,
    parse_service,
    parse_target,
    spell_target,
)
from fleet.protocol.tunnel.messages import Target
from fleet.protocol.tunnel.server_state import Peer


def test_targets_services_and_forwards_are_parsed() -> None:
    """A name may have a type, and an address may be IPv6."""
    assert parse_target("router-7") == Target("router-7")
    assert parse_target("router-7:GNMI_GNOI") == Target("router-7", "GNMI_GNOI")
    assert parse_service("r:SSH=127.0.0.1:22") == Service(Target("r", "SSH"), ("127.0.0.1", 22))
    assert parse_service("r=[::1]:22") == Service(Target("r"), ("::1", 22))
    assert parse_forward("[::1]:0=r:SSH") == LocalForward(("::1", 0), Target("r", "SSH"))


@pytest.mark.parametrize("target", [Target("r"), Target("r", "SSH")])
def test_formatted_target_is_parsed_as_the_same_target(target: Target) -> None:
    """The round trip works with and without a type."""
    assert parse_target(spell_target(target)) == target


@pytest.mark.parametrize("text", ["", ":SSH", "r:"])
def test_incomplete_target_is_refused(text: str) -> None:
    """A name is required, and a colon must be followed by a type."""
    with pytest.raises(ValueError, match="is not NAME"):
        parse_target(text)


@pytest.mark.parametrize("text", ["r", "r=", "=127.0.0.1:22", "r=22", "r=127.0.0.1:x"])
def test_incomplete_service_is_refused(text: str) -> None:
    """The error names the expected format."""
    with pytest.raises(ValueError, match="is not"):
        parse_service(text)


def test_client_may_register_the_names_of_its_certificate() -> None:
    """The target's name must be the common name, a DNS name or a URI of the certificate."""
    rule = make_claims_rule([])
    client = Peer(identity=("router-7", "router-7.example", "spiffe://example/router-7"))
    for name in client.identity:
        assert rule(client, Target(name, "SSH"))
    assert not rule(client, Target("router-8", "SSH"))
    assert not rule(Peer(), Target("router-7", "SSH"))
    assert not rule(Peer(identity=("router-*",)), Target("router-7"))


@pytest.mark.parametrize("name", ["localhost", "refloat.local", "127.0.0.1", "::1"])
def test_names_that_every_certificate_has_are_not_registered(name: str) -> None:
    """Otherwise a client could take over another's target; an explicit claim for the name is accepted."""
    client = Peer(identity=("edge-1", name))
    assert not make_claims_rule([])(client, Target(name))
    assert make_claims_rule([parse_claim(f"edge-1={name}")])(client, Target(name))


def test_claims_allow_targets_beside_the_own_name() -> None:
    """A client may register the targets that its claims match, and its own name."""
    rule = make_claims_rule([parse_claim("edge-1=router-*"), parse_claim("edge-2=router-9")])
    client = Peer(identity=("edge-1",))
    assert rule(client, Target("router-7", "SSH"))
    assert rule(client, Target("edge-1", "SSH"))
    assert not rule(client, Target("switch-7", "SSH"))
    assert not rule(Peer(identity=("edge-2",)), Target("router-7", "SSH"))
    assert not rule(Peer(), Target("router-7", "SSH"))
