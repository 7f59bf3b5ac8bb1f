"""Channels that are balanced by `teleport_pick_healthy`: RFD 226, "Auth Reconnects". docs/pick-healthy.md.

grpcio knows no policies but its own. So each connection of the balancer is a channel with a TCP connection of its own,
and the whole hands every new RPC to the one that is picked. What is decided is in `protocol.recovery.pick_healthy`.
"""

from __future__ import annotations
