"""A grpc.aio channel that leaves a sick server: print which server answers, and each change."""

from __future__ import annotations

import asyncio
import sys

from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.recovery.pick_healthy import BalancerSettings
from fleet.transport.pick_healthy.channel_factory import open_channel


async def main(addresses: list[tuple[str, int]]) -> None:
    """Use the channel with any generated stub, here with the health service."""
    changed = asyncio.Event()
    async with open_channel(
        addresses, settings=BalancerSettings(first_wait=0.25, ceiling=2.0), on_change=changed.set
    ) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            changed.clear()
            policy_before = channel.policy
            response = await stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True)
            status = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
            policy = channel.policy
            # If the channel moved during the call, the policy may not be that of the server that answered.
            if policy is not None and policy == policy_before:
                print(f"{policy.auth_id}: {policy.mode}, {status}", flush=True)
            await changed.wait()


if __name__ == "__main__":
    pairs = [address.rpartition(":") for address in sys.argv[1:]]
    asyncio.run(main([(host, int(port)) for host, _, port in pairs]))
