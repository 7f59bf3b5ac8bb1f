"""Sends the request to mark an instance as degraded, or to clear the mark."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.changes.instance_dialer import call_instance_admin
from fleet.changes.operations.degradations import DegradeRequest
from fleet.transport.tls import TLSFiles
from fleet.vocabulary.instances import InstanceFacts


async def send_request(
    request: DegradeRequest, instances: Mapping[int, InstanceFacts], tls: TLSFiles | None
) -> str:
    """Send the request; return why the instance did not accept it, empty when it did."""
    facts = next((facts for facts in instances.values() if facts.id == request.instance), None)
    if facts is None:
        return "the instance is no longer in the fleet"
    return await call_instance_admin(
        facts.address,
        facts.kind,
        tls,
        lambda admin: (
            admin.degrade(request.reason, request.duration_seconds)
            if request.is_degraded
            else admin.restore()
        ),
    )
