"""Sending an instance the request to report that it is degraded, or no longer."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.changes.standing.degrading import DegradeRequest
from fleet.transport.admin import AdminError, InstanceAdmin
from fleet.transport.channels import TLSError, TLSFiles
from fleet.transport.connections import Connections
from fleet.vocabulary.instances import InstanceFacts

#: An instance answers such a call at once, seconds.
_WITHIN = 2.0


async def send(request: DegradeRequest, instances: Mapping[int, InstanceFacts], tls: TLSFiles | None) -> str:
    """Send it to the instance; return why the instance did not accept it, empty when it did."""
    facts = next((facts for facts in instances.values() if facts.id == request.instance), None)
    if facts is None:
        return "the record has no such instance any more"
    connections = Connections(tls)
    try:
        admin = InstanceAdmin(connections.channel(facts.address, facts.kind), within=_WITHIN)
        await (admin.degrade(request.reason, request.seconds) if request.degraded else admin.restore())
    except (AdminError, TLSError, ValueError) as error:
        return str(error)
    finally:
        await connections.close()
    return ""
