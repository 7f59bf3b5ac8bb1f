"""Values of the flags of a tunnel without a fleet: targets, services, forwards and claims."""

from __future__ import annotations

import fnmatch
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleet.nodes.shared import addresses
from fleet.nodes.shared.options import ParsedOption
from fleet.protocol.tunnel.messages import Target
from fleet.protocol.tunnel.server_state import Peer
from fleet.transport.tls import SHARED_NAMES


@dataclass(frozen=True, slots=True)
class Service:
    """A target, and the TCP service that its sessions are connected to."""

    target: Target
    address: tuple[str, int]


@dataclass(frozen=True, slots=True)
class LocalForward:
    """A local TCP port whose connections become sessions to a target."""

    listen: tuple[str, int]
    target: Target


@dataclass(frozen=True, slots=True)
class Claim:
    """Permission of the clients with a certificate for `identity` to register targets with matching names."""

    identity: str
    pattern: str


def parse_target(text: str) -> Target:
    """Read `NAME` or `NAME:TYPE`. Raises ValueError."""
    name, colon, kind = text.partition(":")
    if not name or (colon and not kind):
        raise ValueError(f"{text!r} is not NAME or NAME:TYPE")
    return Target(name, kind)


def spell_target(target: Target) -> str:
    """Return a target in the form that `parse_target` reads."""
    return f"{target.name}:{target.type}" if target.type else target.name


def parse_service(text: str) -> Service:
    """Read `NAME[:TYPE]=HOST:PORT`. Raises ValueError."""
    target, address = _split_pair(text, "NAME[:TYPE]=HOST:PORT")
    return Service(parse_target(target), addresses.parse(address))


def parse_forward(text: str) -> LocalForward:
    """Read `HOST:PORT=NAME[:TYPE]`. Raises ValueError."""
    address, target = _split_pair(text, "HOST:PORT=NAME[:TYPE]")
    return LocalForward(addresses.parse(address), parse_target(target))


def parse_claim(text: str) -> Claim:
    """Read `IDENTITY=PATTERN`. Raises ValueError."""
    return Claim(*_split_pair(text, "IDENTITY=PATTERN"))


def _split_pair(text: str, form: str) -> tuple[str, str]:
    key, _, right = text.partition("=")
    if not key or not right:
        raise ValueError(f"{text!r} is not {form}")
    return key, right


def make_claims_rule(claims: Sequence[Claim]) -> Callable[[Peer, Target], bool]:
    """Return the rule for registrations: targets named like the client's certificate, and those that claims add."""

    def may_claim(peer: Peer, target: Target) -> bool:
        if target.name in peer.identity and target.name not in SHARED_NAMES and not _is_address(target.name):
            return True
        return any(
            claim.identity in peer.identity and fnmatch.fnmatchcase(target.name, claim.pattern)
            for claim in claims
        )

    return may_claim


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


TARGET = ParsedOption("name[:type]", parse_target)
SERVICE = ParsedOption("name[:type]=host:port", parse_service)
FORWARD = ParsedOption("host:port=name[:type]", parse_forward)
CLAIM = ParsedOption("identity=pattern", parse_claim)
