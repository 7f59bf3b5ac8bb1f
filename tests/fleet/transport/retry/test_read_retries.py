"""Which calls of ours are made again."""

from __future__ import annotations

from fleet.protocol.retry.policy import NO_RETRY, RetryPolicy
from fleet.transport.retry.read_retries import DEFAULT, READS, REPORTS, policy_by_method
from fleet.wire import clusterconfig_pb2, fleet_pb2, presence_pb2


def test_reads_are_retried_and_writes_are_not() -> None:
    """A policy of one's own for the same methods; anything else goes out once."""
    policies = policy_by_method()
    for method in READS:
        assert policies(method) is DEFAULT
    assert policies("/fleet.v1.InstanceAdmin/SetStanding") is NO_RETRY
    mine = RetryPolicy(attempts=3)
    assert policy_by_method(mine)("/fleet.v1.AgentFeed/ListAgents") is mine


def test_reads_are_methods_there_are() -> None:
    """A name with a slip would never be retried, and nobody would see it."""
    files = [fleet_pb2, presence_pb2, clusterconfig_pb2]
    known = {
        f"/{service.full_name}/{method.name}"
        for file in files
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert known >= READS | REPORTS
