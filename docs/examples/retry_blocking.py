"""The same for grpc's blocking API, with a policy in code."""

from __future__ import annotations

import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.retry.policy import RetryPolicy, RetryReason
from fleet.transport.retry.blocking import BlockingRetryInterceptor

POLICY = RetryPolicy(
    frozenset({RetryReason.UNAVAILABLE, RetryReason.DEADLINE_EXCEEDED}),
    attempts=5,
    backoff=0.1,
    request=30.0,
    backend_request=10.0,
)


def main(address: str) -> None:
    """Use the channel with any generated stub."""
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(grpc.intercept_channel(channel, BlockingRetryInterceptor(POLICY)))
        response = stub.Check(health_pb2.HealthCheckRequest())
        print(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))


if __name__ == "__main__":
    main(sys.argv[1])
