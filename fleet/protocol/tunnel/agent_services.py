"""Services that agents expose through their tunnels: names of services and targets, and who may claim which.

A target is `SERVICE.AGENT-ID`. Names that begin with an underscore are internal, and users cannot reach them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fleet.protocol.tunnel.messages import Target
from fleet.protocol.tunnel.server_state import Peer

#: Internal service of every agent: returns the agent's state as JSON.
STATUS_SERVICE = "_status"

#: A DNS label in lower case, so that a user's program accepts it as a host name.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
#: URI in the certificate of a process with many agents, instead of each name.
_RANGE_URI = re.compile(r"refloat:agents:(?P<prefix>.*)-(?P<first>\d{1,9})\.\.(?P<last>\d{1,9})", re.DOTALL)


class ServiceNameError(ValueError):
    """A name that is not a service name; the message has the rules."""


def check_name(name: str) -> str:
    """Return a service name unchanged. Raises ServiceNameError if it is not valid."""
    if not _NAME.fullmatch(name):
        raise ServiceNameError(
            f"{name!r} is not a service name. Use up to 63 of a-z, 0-9 and -, with no - at either end"
        )
    return name


def target_of(service: str, agent_id: str) -> Target:
    """Return the target of an agent's service."""
    return Target(f"{service}.{agent_id}")


def split_target(target: Target) -> tuple[str, str]:
    """Return the service and the agent id of a target; empty where it has none."""
    service, _, agent_id = target.name.partition(".")
    return service, agent_id


def may_claim(peer: Peer, target: Target) -> bool:
    """Return whether an agent may register a target: only those of its own services."""
    service, agent_id = split_target(target)
    is_valid_service = service == STATUS_SERVICE or _NAME.fullmatch(service) is not None
    return is_valid_service and not target.type and agent_id != "" and agent_id == peer.name


def range_uri(prefix: str, first: int, count: int) -> str:
    """Return the certificate URI for the names of `count` agents, PREFIX-FIRST and on."""
    return f"refloat:agents:{prefix}-{first}..{first + count - 1}"


def identity_matches(
    certificate_names: Sequence[str], agent_id: str, name: str, id_of: Callable[[str], str]
) -> bool:
    """Return whether the names in a certificate prove the identity of the agent with this id and name.

    They do if both are among them, the name alone or in a range; either is enough if the id is derived from that name.
    Users address agents by id and by name: an agent that could choose either would receive another agent's users.
    """
    has_id = agent_id in certificate_names
    has_name = any(
        certificate_name == name or _range_covers(certificate_name, name)
        for certificate_name in certificate_names
    )
    return (has_id or has_name) if agent_id == id_of(name) else (has_id and has_name)


def _range_covers(certificate_name: str, name: str) -> bool:
    match = _RANGE_URI.fullmatch(certificate_name)
    prefix, dash, number = name.rpartition("-")
    if match is None or not dash or not (number.isascii() and number.isdigit()) or len(number) > 9:
        return False
    # One spelling for each number: agent-01 is not agent-1.
    is_canonical = str(int(number)) == number
    return (
        is_canonical
        and prefix == match["prefix"]
        and int(match["first"]) <= int(number) <= int(match["last"])
    )
