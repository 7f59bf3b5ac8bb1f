"""The packed columns of a cluster: one row per agent, by dense agent index. docs/record.md.

Each is one little-endian blob in the record (`fleet.monitoring.state`) and one numpy array in a round. Budget:
64 bytes of live evidence (HEARTBEAT + TUNNEL rows) and 200 bytes in all per agent.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
        ("flags", "u1"),  # HEALTH_CHECK | LIST_PARITY
        ("desired", "u1"),
        ("claimed", "u1"),
    ]
)
HEALTH_CHECK = 1
#: In `flags` as well: the parity of the full list that last named the agent. Who has another one was left out.
LIST_PARITY = 0x80

#: T, one row per tunnel, one blob per proxy. 8 bytes.
TUNNEL = np.dtype([("agent", "<u4"), ("opened_at", "<u4")])  # opened_at: whole seconds since the epoch

#: C as an agent told it through its tunnel: one row per agent that was asked lately, by its index. 32 bytes.
AGENT_REPORT = np.dtype(
    [
        ("at", "<f8"),  # when it was asked
        ("policy_read_at", "<f8"),  # 0: it did not say
        ("ttl_seen", "<f4"),
        ("mode", "u1"),
        ("flags", "u1"),  # HEALTH_CHECK | ANSWERED
        ("desired", "u1"),
        ("claimed", "u1"),
        ("tracked", "u1"),
        ("padding", "V7"),
    ]
)
#: In its `flags`: the agent answered, and the row says what.
HAS_REPORT = 2

#: How many proxies an agent is remembered on.
LAST_PROXY_COUNT = 3

#: What outlives the evidence, one row per agent. 28 bytes.
MEMORY = np.dtype(
    [
        ("working_until", "<f8"),  # 0: no reconnect under way
        ("home", "<u2"),  # the first proxy it was recorded on: its block on the map
        ("last_auth", "<u2"),
        ("last_proxies", "<u2", (LAST_PROXY_COUNT,)),  # newest first
        ("flags", "u1"),  # RETIRED | HAD_TUNNEL | DISAGREEMENT
        ("tracked", "u1"),  # unexpired proxies the agent says it knows
        ("lost_at", "<f8"),  # since when it has had no live tunnel; 0: it has one, or never had
    ]
)
RETIRED = 1
HAD_TUNNEL = 2
#: The rounds in a row in which it claimed more tunnels than proxies reported; means nothing to the database.
DISAGREEMENT = 0xFC
DISAGREEMENT_SHIFT = 2

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


def empty_heartbeats(agents: int) -> npt.NDArray[np.void]:
    """Make HEARTBEAT rows of agents whose resource was never seen; zeros would name instance 0."""
    rows = np.zeros(agents, HEARTBEAT)
    rows["auth"] = NO_INSTANCE
    rows["via_proxy"] = NO_INSTANCE
    return rows


def empty_memory(agents: int) -> npt.NDArray[np.void]:
    """Make MEMORY rows of agents of which nothing is remembered; zeros would name instance 0."""
    rows = np.zeros(agents, MEMORY)
    rows["home"] = NO_INSTANCE
    rows["last_auth"] = NO_INSTANCE
    rows["last_proxies"] = NO_INSTANCE
    return rows
