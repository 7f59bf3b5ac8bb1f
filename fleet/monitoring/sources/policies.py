"""Policies that an auth or proxy runs with, by fleet.v1.NodePolicies. Teleport's instances do not have this service."""

from __future__ import annotations

import grpc.aio

from fleet.monitoring.sources import SourceError, map_source_errors, require_parsed
from fleet.monitoring.sources.source import EvidenceSource
from fleet.protocol.policies.env_policies import BY_NAME, PolicySource, PolicyValue
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.node_policies import NodeReport, PolicyReport
from fleet.wire import fleet_pb2, fleet_pb2_grpc


async def read_policies(
    channel: grpc.aio.Channel,
    *,
    timeout: float,  # noqa: ASYNC109 - it is gRPC's
) -> NodeReport:
    """Read the policies within `timeout` seconds, without unknown policies. Raises SourceError."""
    stub = fleet_pb2_grpc.NodePoliciesStub(channel)
    with map_source_errors():
        response = require_parsed(await stub.GetPolicies(fleet_pb2.GetPoliciesRequest(), timeout=timeout))
    try:
        policies = {
            policy.name: PolicyReport(
                PolicyValue(policy.name, policy.value, PolicySource(policy.source)),
                PolicyValue(policy.name, policy.next_value, PolicySource(policy.next_source)),
                PolicyValue(policy.name, policy.fallback_value, PolicySource(policy.fallback_source))
                if policy.fallback_source
                else None,
            )
            for policy in response.policies
            if policy.name in BY_NAME
        }
    except ValueError as error:
        raise SourceError(f"the policy report is invalid: {error}", has_response=True) from None
    return NodeReport(
        instance_id=response.instance_id,
        role=response.role,
        run_id=response.run_id,
        uptime_seconds=response.uptime_ms / 1000,
        revision=response.revision,
        refusal_reason=response.refusal_reason,
        policies=policies,
    )


#: Not part of rounds: policies change when an instance restarts, and `fleet.tasks.read_policies` reads them.
POLICIES = EvidenceSource(
    "policies",
    lambda context: read_policies(context.channel, timeout=context.remaining_seconds()),
    capabilities=frozenset({Capability.POLICIES}),
)
