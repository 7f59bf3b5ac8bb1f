from __future__ import annotations

import pytest

from fleet.nodes.tunnel_words import (
    Forward,
    Service,
    claims_rule,
    parse_claim,
    parse_forward,
    parse_service,
    parse_target,
    spell_target,
)
from fleet.protocol.tunnel import Target
from fleet.protocol.tunnel_server import Peer


def test_words_of_targets_services_and_forwards() -> None:
    """A type may stand after a name, and an address may be IPv6."""
    assert parse_target("router-7") == Target("router-7")
    assert parse_target("router-7:GNMI_GNOI") == Target("router-7", "GNMI_GNOI")
    assert parse_service("r:SSH=127.0.0.1:22") == Service(Target("r", "SSH"), ("127.0.0.1", 22))
    assert parse_service("r=[::1]:22") == Service(Target("r"), ("::1", 22))
    assert parse_forward("[::1]:0=r:SSH") == Forward(("::1", 0), Target("r", "SSH"))


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


def test_claims_bind_identities_to_targets() -> None:
    """Who proves a name may register what its claims match, and nothing else; the others nothing."""
    rule = claims_rule([parse_claim("edge-1=router-*"), parse_claim("edge-2=router-9")])
    assert rule is not None
    one = Peer(identity=("edge-1",))
    assert rule(one, Target("router-7", "SSH"))
    assert not rule(one, Target("switch-7", "SSH"))
    assert not rule(Peer(identity=("edge-2",)), Target("router-7", "SSH"))
    assert not rule(Peer(), Target("router-7", "SSH"))


def test_no_claims_are_no_rule() -> None:
    """Anybody may register anything then."""
    assert claims_rule([]) is None
