from __future__ import annotations

import pytest

from fleet.nodes.tunnel.flags import (
    LocalForward,
    Service,
    claims_rule,
    parse_claim,
    parse_forward,
    parse_service,
    parse_target,
    spell_target,
)
from fleet.protocol.tunnel.messages import Target
from fleet.protocol.tunnel.server_state import Peer


def test_words_of_targets_services_and_forwards() -> None:
    """A type may stand after a name, and an address may be IPv6."""
    assert parse_target("router-7") == Target("router-7")
    assert parse_target("router-7:GNMI_GNOI") == Target("router-7", "GNMI_GNOI")
    assert parse_service("r:SSH=127.0.0.1:22") == Service(Target("r", "SSH"), ("127.0.0.1", 22))
    assert parse_service("r=[::1]:22") == Service(Target("r"), ("::1", 22))
    assert parse_forward("[::1]:0=r:SSH") == LocalForward(("::1", 0), Target("r", "SSH"))


@pytest.mark.parametrize("target", [Target("r"), Target("r", "SSH")])
def test_target_is_spelled_as_it_is_read(target: Target) -> None:
    """There and back."""
    assert parse_target(spell_target(target)) == target


@pytest.mark.parametrize("text", ["", ":SSH", "r:"])
def test_target_without_a_part_is_refused(text: str) -> None:
    """A name is needed, and a colon announces a type."""
    with pytest.raises(ValueError, match="is not NAME"):
        parse_target(text)


@pytest.mark.parametrize("text", ["r", "r=", "=127.0.0.1:22", "r=22", "r=127.0.0.1:x"])
def test_service_without_a_part_is_refused(text: str) -> None:
    """The sentence says what is wanted."""
    with pytest.raises(ValueError, match="is not"):
        parse_service(text)


def test_certificate_names_are_the_targets_a_client_may_register() -> None:
    """By themselves: the target's name as the certificate has it, as its common name, a DNS name or a URI."""
    rule = claims_rule([])
    client = Peer(identity=("router-7", "router-7.example", "spiffe://example/router-7"))
    for name in client.identity:
        assert rule(client, Target(name, "SSH"))
    assert not rule(client, Target("router-8", "SSH"))
    assert not rule(Peer(), Target("router-7", "SSH"))
    assert not rule(Peer(identity=("router-*",)), Target("router-7"))


@pytest.mark.parametrize("name", ["localhost", "refloat.local", "127.0.0.1", "::1"])
def test_names_that_every_certificate_has_prove_nothing(name: str) -> None:
    """One client could take the target from another; a claim that names it is the operator's own word."""
    client = Peer(identity=("edge-1", name))
    assert not claims_rule([])(client, Target(name))
    assert claims_rule([parse_claim(f"edge-1={name}")])(client, Target(name))


def test_claims_widen_what_an_identity_may_register() -> None:
    """Who proves a name may register what its claims match, beside its own name."""
    rule = claims_rule([parse_claim("edge-1=router-*"), parse_claim("edge-2=router-9")])
    one = Peer(identity=("edge-1",))
    assert rule(one, Target("router-7", "SSH"))
    assert rule(one, Target("edge-1", "SSH"))
    assert not rule(one, Target("switch-7", "SSH"))
    assert not rule(Peer(identity=("edge-2",)), Target("router-7", "SSH"))
    assert not rule(Peer(), Target("router-7", "SSH"))
