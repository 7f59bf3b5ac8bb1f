"""A grpc.aio channel whose unary calls are retried as a GRPCRoute says: it asks a server for its health."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.retry.budget import BudgetSettings
from fleet.protocol.retry.grpc_route_yaml import from_yaml
from fleet.transport.retry.aio import Retrying
from fleet.transport.retry.retried_call import SharedBudget


async def main(address: str, route_file: str) -> None:
    """Use the channel with any generated stub."""
    (route,) = from_yaml(Path(route_file).read_text(encoding="utf-8"))  # noqa: ASYNC240 - nothing else runs yet
    # Of all that is sent within ten seconds at most a fifth may be retries, but ten a second in any case.
    budget = SharedBudget(BudgetSettings(percent=20))
    retrying = Retrying(route.policy_for, budget=budget)
    async with grpc.aio.insecure_channel(address, interceptors=[retrying]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest())
        print(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
