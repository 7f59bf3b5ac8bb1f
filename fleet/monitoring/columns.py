"""Packed columns of a cluster: one row per agent, by dense agent index. docs/reference/record.md.

Each is one little-endian blob in the record (`fleet.monitoring.state`) and one numpy array in a round. Budget:
64 bytes of live evidence (HEARTBEAT + TUNNEL rows) and 200 bytes in all per agent.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

#: Value for no instance in a u2 column.
NO_INSTANCE = 0xFFFF

#: Evidence H and C, one row per agent; `expires_at` 0: no resource was ever seen. 32 bytes.
HEARTBEAT = np.dtype(
    [
        ("expires_at", "<f8"),
        ("policy_read_at", "<f8"),  # 0: not reported
        ("ttl", "<f4"),
        ("ttl_seen", "<f4"),
        ("auth", "<u2"),
        ("via_proxy", "<u2"),
        ("mode", "u1"),
        ("flags", "u1"),  # HEALTH_CHECK | LIST_PARITY
        ("desired_count", "u1"),
        ("claimed_count", "u1"),
    ]
)
HEALTH_CHECK = 1
#: Flag: parity of the full list that last named the agent. An agent with another parity was not in the list.
LIST_PARITY = 0x80

#: Evidence T, one row per tunnel, one blob per proxy. 8 bytes.
TUNNEL = np.dtype([("agent", "<u4"), ("opened_at", "<u4")])  # opened_at: whole seconds since the epoch

#: Evidence C from an agent's report through its tunnel: one row per recently asked agent, by index. 32 bytes.
AGENT_REPORT = np.dtype(
    [
        ("at", "<f8"),  # when the agent was asked
        ("policy_read_at", "<f8"),  # 0: not reported
        ("ttl_seen", "<f4"),
        ("mode", "u1"),
        ("flags", "u1"),  # HEALTH_CHECK | HAS_REPORT
        ("desired_count", "u1"),
        ("claimed_count", "u1"),
        ("tracked_count", "u1"),
        ("padding", "V7"),
    ]
)
#: Flag: the agent responded, and the row has its values.
HAS_REPORT = 2

#: Number of last proxies remembered per agent.
LAST_PROXY_COUNT = 3

#: Remembered values that outlive the evidence, one row per agent. 28 bytes.
MEMORY = np.dtype(
    [
        ("working_until", "<f8"),  # 0: no reconnect in progress
        ("home_proxy", "<u2"),  # first proxy that the agent was recorded on: its block on the map
        ("last_auth", "<u2"),
        ("last_proxies", "<u2", (LAST_PROXY_COUNT,)),  # the current one first, then newest first
        ("flags", "u1"),  # RETIRED | HAD_TUNNEL | DISAGREEMENT
        ("tracked_count", "u1"),  # number of unexpired proxies that the agent knows
        ("lost_at", "<f8"),  # since when the agent has had no live tunnel; 0: it has one, or never had one
    ]
)
RETIRED = 1
HAD_TUNNEL = 2
#: Consecutive rounds in which the agent reported more tunnels than proxies did; not stored in the database.
DISAGREEMENT = 0xFC
DISAGREEMENT_SHIFT = 2

#: Verdict, one row per agent. 28 bytes.
VERDICT = np.dtype(
    [
        ("since", "<f8"),  # when the present state began
        ("recovers_at", "<f8"),  # 0: none
        ("strands_at", "<f8"),  # 0: none
        ("cause", "<u2"),  # instance index, NO_CAUSE or BACKEND_CAUSE
        ("state", "u1"),
        ("reason_and_recovery", "u1"),  # reason in the low five bits, recovery in the high three
    ]
)
REASON_BITS = 0x1F
RECOVERY_SHIFT = 5

#: Number of proxies with tunnels that a PLACE row has.
PLACE_PROXY_COUNT = 3

#: Where a round found the agent, one row per agent. 12 bytes.
PLACE = np.dtype(
    [
        ("auth", "<u2"),  # auth that received the last heartbeat
        ("proxy", "<u2"),  # current proxy, the first of the last proxies: its block on the map
        ("proxies", "<u2", (PLACE_PROXY_COUNT,)),  # proxies that report a tunnel, by index, ascending
        ("tunnel_count", "u1"),  # number of reported tunnels, at most 255
        ("presence", "u1"),  # ResourcePresence
    ]
)


class ResourcePresence(IntEnum):
    """Resource of an agent in the presence list, in PLACE rows and in the history. Never renumber."""

    #: A round of an earlier version.
    NOT_RECORDED = 0
    UNEXPIRED = 1
    #: Expired, or never seen.
    EXPIRED = 2
    #: The expiry has passed, but no list was read since.
    UNCLEAR = 3


#: What the sentence of a verdict names besides instances, as the history keeps it; little-endian, 2 bytes:
#: ResourcePresence in the low two bits, then ReconnectMode (2), HEALTH_CHECK (1), desired number of tunnels (4), known
#: proxies (7).
AGENT_EVIDENCE = np.dtype("<u2")
_MODE_SHIFT, _HEALTH_CHECK_SHIFT, _DESIRED_COUNT_SHIFT, _TRACKED_COUNT_SHIFT = 2, 4, 5, 9
PRESENCE_BITS = _MODE_BITS = 0x3
_DESIRED_COUNT_BITS, _TRACKED_COUNT_BITS = 0xF, 0x7F

#: Version and labels that an agent reported, one row per agent; 0: none. 8 bytes.
ATTRIBUTE = np.dtype([("version", "<u4"), ("label_set", "<u4")])


def blank_heartbeats(agent_count: int) -> npt.NDArray[np.void]:
    """Return HEARTBEAT rows of agents whose resource was never seen; zeros would name instance 0."""
    rows = np.zeros(agent_count, HEARTBEAT)
    rows["auth"] = NO_INSTANCE
    rows["via_proxy"] = NO_INSTANCE
    return rows


def blank_places(agent_count: int) -> npt.NDArray[np.void]:
    """Return PLACE rows of agents without an auth and tunnels; zeros would name instance 0."""
    rows = np.zeros(agent_count, PLACE)
    for name in ("auth", "proxy", "proxies"):
        rows[name] = NO_INSTANCE
    return rows


def blank_memory(agent_count: int) -> npt.NDArray[np.void]:
    """Return MEMORY rows of agents without remembered values; zeros would name instance 0."""
    rows = np.zeros(agent_count, MEMORY)
    rows["home_proxy"] = NO_INSTANCE
    rows["last_auth"] = NO_INSTANCE
    rows["last_proxies"] = NO_INSTANCE
    return rows


def pack_agent_evidence(
    heartbeats: npt.NDArray[np.void], memory: npt.NDArray[np.void], places: npt.NDArray[np.void]
) -> npt.NDArray[np.uint16]:
    """Return AGENT_EVIDENCE of the same agents' HEARTBEAT, MEMORY and PLACE rows; larger counts become the largest."""
    evidence = places["presence"].astype(AGENT_EVIDENCE)
    evidence |= (heartbeats["mode"].astype(AGENT_EVIDENCE) & _MODE_BITS) << _MODE_SHIFT
    evidence |= (heartbeats["flags"].astype(AGENT_EVIDENCE) & HEALTH_CHECK) << _HEALTH_CHECK_SHIFT
    desired_counts = np.minimum(heartbeats["desired_count"], _DESIRED_COUNT_BITS).astype(AGENT_EVIDENCE)
    evidence |= desired_counts << _DESIRED_COUNT_SHIFT
    tracked_counts = np.minimum(memory["tracked_count"], _TRACKED_COUNT_BITS).astype(AGENT_EVIDENCE)
    evidence |= tracked_counts << _TRACKED_COUNT_SHIFT
    return evidence


def presences_in(evidence: npt.NDArray[np.uint16]) -> npt.NDArray[np.uint16]:
    """Return the ResourcePresence in AGENT_EVIDENCE."""
    presences: npt.NDArray[np.uint16] = evidence & np.uint16(PRESENCE_BITS)
    return presences


def unpack_agent_evidence(
    evidence: npt.NDArray[np.uint16], heartbeats: npt.NDArray[np.void], memory: npt.NDArray[np.void]
) -> None:
    """Write the policy and the counts in AGENT_EVIDENCE into the same agents' HEARTBEAT and MEMORY rows."""
    heartbeats["mode"] = (evidence >> _MODE_SHIFT) & _MODE_BITS
    heartbeats["flags"] = (evidence >> _HEALTH_CHECK_SHIFT) & HEALTH_CHECK
    heartbeats["desired_count"] = (evidence >> _DESIRED_COUNT_SHIFT) & _DESIRED_COUNT_BITS
    memory["tracked_count"] = (evidence >> _TRACKED_COUNT_SHIFT) & _TRACKED_COUNT_BITS
