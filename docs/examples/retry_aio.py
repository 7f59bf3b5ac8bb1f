"""A grpc.aio channel that retries unary calls by a GRPCRoute. The example calls the health service."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.retry.budget import BudgetSettings
from fleet.protocol.retry.grpc_route_yaml import from_yaml
from fleet.transport.retry.aio import RetryInterceptor
from fleet.transport.retry.retried_call import SharedBudget


async def main(address: str, route_file: str) -> None:
    """Use the channel with any generated stub."""
    (route,) = from_yaml(Path(route_file).read_text(encoding="utf-8"))  # noqa: ASYNC240 - nothing else runs yet
    # At most 20 % of the attempts within 10 s are retries; ten retries per second are always allowed.
    budget = SharedBudget(BudgetSettings(percent=20))
    interceptor = RetryInterceptor(route.policy_for, budget=budget)
    async with grpc.aio.insecure_channel(address, interceptors=[interceptor]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        response = await stub.Check(health_pb2.HealthCheckRequest())
        print(health_pb2.HealthCheckResponse.ServingStatus.Name(response.status))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
