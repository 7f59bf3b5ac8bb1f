"""What agents expose through their tunnels: names of services, of targets, and who may claim which.

A target is `SERVICE.AGENT-ID`. Names that begin with an underscore are ours, and no user reaches them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from fleet.protocol.tunnel.messages import Target
from fleet.protocol.tunnel.server_state import Peer

#: Every agent registers it: who asks is told, as JSON, what the agent knows.
STATUS = "_status"

#: A label of DNS, in lower case, so that a user's program may take it for a host name.
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
#: What a certificate of a process with many agents says instead of naming each.
_RANGE = re.compile(r"refloat:agents:(?P<prefix>.*)-(?P<first>\d{1,9})\.\.(?P<last>\d{1,9})", re.DOTALL)


class ServiceNameError(ValueError):
    """No name for a service; the sentence says what one is."""


def check_name(name: str) -> str:
    """Return the name of a service as it is. Raises ServiceNameError."""
    if not _NAME.fullmatch(name):
        raise ServiceNameError(
            f"{name!r} is no name of a service: up to 63 of a-z, 0-9 and -, with no - at either end"
        )
    return name


def target_of(service: str, agent_id: str) -> Target:
    """The target of an agent's service."""
    return Target(f"{service}.{agent_id}")


def split(target: Target) -> tuple[str, str]:
    """The service and the agent's id of a target; empty where it has none."""
    service, _, agent_id = target.name.partition(".")
    return service, agent_id


def may_claim(peer: Peer, target: Target) -> bool:
    """Whether an agent that registers may claim a target: its own services', and no other."""
    service, agent_id = split(target)
    is_named = service == STATUS or _NAME.fullmatch(service) is not None
    return is_named and not target.type and agent_id != "" and agent_id == peer.name


def range_name(prefix: str, first: int, count: int) -> str:
    """What a certificate says for all of `count` agents PREFIX-FIRST and on: their names, as one URI."""
    return f"refloat:agents:{prefix}-{first}..{first + count - 1}"


def identity_matches(identity: Sequence[str], agent_id: str, name: str, id_of: Callable[[str], str]) -> bool:
    """Whether the names a certificate proves are those of the agent with that id and name.

    They are if both are among them, a name alone or in a range; one will do if the id is the one made from that name.
    Users ask for agents by id and by name: who could choose either would be asked in the place of somebody else.
    """
    has_id = agent_id in identity
    has_name = any(identity_name == name or _covers(identity_name, name) for identity_name in identity)
    return (has_id or has_name) if agent_id == id_of(name) else (has_id and has_name)


def _covers(identity_name: str, name: str) -> bool:
    match = _RANGE.fullmatch(identity_name)
    prefix, dash, number = name.rpartition("-")
    if match is None or not dash or not (number.isascii() and number.isdigit()) or len(number) > 9:
        return False
    # One spelling for each number: agent-01 is not agent-1.
    is_canonical = str(int(number)) == number
    return is_canonical and prefix == match["prefix"] and int(match["first"]) <= int(number) <= int(match["last"])
