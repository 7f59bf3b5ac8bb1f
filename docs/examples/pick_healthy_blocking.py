"""The same channel for grpc's blocking API: it says which server answers, and whenever that changes."""

from __future__ import annotations

import sys
import time

from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.recovery.pick_healthy import Settings
from fleet.transport.pick_healthy.channel_factory import open_blocking_channel


def main(addresses: list[tuple[str, int]]) -> None:
    """Use the channel with any generated stub; here one that asks for the server's health, five times a second."""
    said = ""
    with open_blocking_channel(addresses, settings=Settings(first_wait=0.25, ceiling=2.0)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            answer = stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True)
            status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
            policy = channel.policy
            if policy is not None and policy.auth_id != said:
                print(f"{policy.auth_id}: {policy.mode}, {status}", flush=True)
                said = policy.auth_id
            time.sleep(0.2)


if __name__ == "__main__":
    pairs = [address.rpartition(":") for address in sys.argv[1:]]
    main([(host, int(port)) for host, _, port in pairs])
