"""gRPC channels with the `teleport_pick_healthy` policy: RFD 226, "Auth Reconnects". docs/reference/pick-healthy.md.

grpcio only supports its own policies. So each connection of the balancer is a gRPC channel with its own TCP connection,
and new RPCs go to the one that is picked. `protocol.recovery.pick_healthy` decides which.
"""

from __future__ import annotations
