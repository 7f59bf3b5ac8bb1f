"""Methods whose calls are retried by default."""

from __future__ import annotations

from fleet.protocol.retry.policy import NO_RETRY, RetryPolicy
from fleet.transport.retry.read_retries import DEFAULT_READ_RETRIES, READ_METHODS, policy_by_method
from fleet.wire import clusterconfig_pb2, fleet_pb2, presence_pb2


def test_reads_are_retried_and_writes_are_not() -> None:
    """Another policy can be set for the same methods."""
    policies = policy_by_method()
    for method in READ_METHODS:
        assert policies(method) is DEFAULT_READ_RETRIES
    assert policies("/fleet.v1.InstanceAdmin/SetDeclaredStatus") is NO_RETRY
    own_policy = RetryPolicy(attempts=3)
    assert policy_by_method(own_policy)("/fleet.v1.AgentFeed/ListAgents") is own_policy


def test_read_methods_exist() -> None:
    """A misspelled name would never be retried."""
    files = [fleet_pb2, presence_pb2, clusterconfig_pb2]
    method_paths = {
        f"/{service.full_name}/{method.name}"
        for file in files
        for service in file.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert method_paths >= READ_METHODS
