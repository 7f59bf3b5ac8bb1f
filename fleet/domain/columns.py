"""The packed columns of a cluster: one row per agent, by dense agent index. docs/record.md.

Each is one little-endian blob in the record (`fleet.state`) and one numpy array in a round. Budget:
64 bytes of live evidence (HEARTBEAT + TUNNEL rows) and 200 bytes in all per agent.
"""

from __future__ import annotations

import numpy as np

#: "No instance" in a u2 column.
NO_INSTANCE = 0xFFFF

#: H and C, one row per agent; `expires_at` 0 means no resource was ever seen. 32 bytes.
HEARTBEAT = np.dtype(
    [
        ("expires_at", "<f8"),
        ("policy_read_at", "<f8"),  # 0: it did not say
        ("ttl", "<f4"),
        ("ttl_seen", "<f4"),
        ("auth", "<u2"),
        ("via_proxy", "<u2"),
        ("mode", "u1"),
        ("flags", "u1"),  # HEALTH_CHECK
        ("desired", "u1"),
        ("claimed", "u1"),
    ]
)
HEALTH_CHECK = 1

#: T, one row per tunnel, one blob per proxy. 8 bytes.
TUNNEL = np.dtype([("agent", "<u4"), ("opened_at", "<u4")])  # opened_at: whole seconds since the epoch

#: What outlives the evidence, one row per agent. 20 bytes.
MEMORY = np.dtype(
    [
        ("working_until", "<f8"),  # 0: no reconnect under way
        ("home", "<u2"),  # the first proxy it was recorded on: its block on the map
        ("last_auth", "<u2"),
        ("last_proxies", "<u2", (3,)),  # newest first
        ("flags", "u1"),  # RETIRED | HAD_TUNNEL
        ("tracked", "u1"),  # unexpired proxies the agent says it knows
    ]
)
RETIRED = 1
HAD_TUNNEL = 2

#: The verdict, one row per agent. 28 bytes.
VERDICT = np.dtype(
    [
        ("since", "<f8"),  # when the present state began
        ("recovers_at", "<f8"),  # 0: none
        ("strands_at", "<f8"),  # 0: none
        ("cause", "<u2"),  # instance index, NO_CAUSE or BACKEND_CAUSE
        ("state", "u1"),
        ("packed", "u1"),  # reason in the low five bits, recovery in the high three
    ]
)
REASON_BITS = 0x1F
RECOVERY_SHIFT = 5
