"""The same channel for grpc's blocking API: print which server answers, and each change."""

from __future__ import annotations

import sys
import time

from grpc_health.v1 import health_pb2, health_pb2_grpc

from fleet.protocol.recovery.pick_healthy import BalancerSettings
from fleet.transport.pick_healthy.channel_factory import open_blocking_channel


def main(addresses: list[tuple[str, int]]) -> None:
    """Use the channel with any generated stub, here with the health service, five times a second."""
    last_auth_id = ""
    with open_blocking_channel(addresses, settings=BalancerSettings(first_wait=0.25, ceiling=2.0)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            policy_before = channel.policy
            response = stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True)
            status = health_pb2.HealthCheckResponse.ServingStatus.Name(response.status)
            policy = channel.policy
            # If the channel moved during the call, the policy may not be that of the server that answered.
            if policy is not None and policy == policy_before and policy.auth_id != last_auth_id:
                print(f"{policy.auth_id}: {policy.mode}, {status}", flush=True)
                last_auth_id = policy.auth_id
            time.sleep(0.2)


if __name__ == "__main__":
    pairs = [address.rpartition(":") for address in sys.argv[1:]]
    main([(host, int(port)) for host, _, port in pairs])
