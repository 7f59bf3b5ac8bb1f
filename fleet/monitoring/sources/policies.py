"""The policies that an auth or proxy runs with, by fleet.v1.NodePolicies. Teleport's have no such service."""

from __future__ import annotations

import grpc.aio

from fleet.monitoring.sources import SourceFailed, asking
from fleet.monitoring.sources.source import EvidenceSource
from fleet.protocol.policies.env_policies import BY_NAME, Source, PolicyValue
from fleet.vocabulary.node_policies import NodeReport, PolicyReport
from fleet.wire import fleet_pb2, fleet_pb2_grpc


async def ask_policies(
    channel: grpc.aio.Channel,
    *,
    timeout: float,  # noqa: ASYNC109 - it is gRPC's
) -> NodeReport:
    """Ask within `timeout` seconds. Policies that we do not know are left out. Raises SourceFailed."""
    stub = fleet_pb2_grpc.NodePoliciesStub(channel)
    with asking():
        answer = await stub.GetPolicies(fleet_pb2.GetPoliciesRequest(), timeout=timeout)
    try:
        found = {
            one.name: PolicyReport(
                PolicyValue(one.name, one.value, Source(one.source)),
                PolicyValue(one.name, one.next_value, Source(one.next_source)),
                PolicyValue(one.name, one.beneath_value, Source(one.beneath_source))
                if one.beneath_source
                else None,
            )
            for one in answer.policies
            if one.name in BY_NAME
        }
    except ValueError as error:
        raise SourceFailed(f"what it says of its policies cannot be read: {error}", answered=True) from None
    return NodeReport(
        instance_id=answer.instance_id,
        role=answer.role,
        run_id=answer.run_id,
        up_for=answer.up_for_ms / 1000,
        revision=answer.revision,
        why_not=answer.why_not,
        policies=found,
    )


#: Not in a round: policies change when an instance restarts, and `fleet.tasks.read_policies` has time of its own.
POLICIES = EvidenceSource(
    "policies", lambda question: ask_policies(question.channel, timeout=question.left())
)
