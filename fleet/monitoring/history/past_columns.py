"""Columns of a fleet at a past moment: one row per agent, by its key in the database. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fleet.monitoring.columns import AGENT_EVIDENCE

#: `auths` and `tunnel_counts` of changes that earlier versions recorded without places.
NOT_RECORDED = -2


@dataclass(frozen=True, slots=True)
class PastColumns:
    """State of every agent at one moment. Arrays have one entry per agent of `agents`, except `tunnel_proxies`."""

    #: Moment of the keyframe or of the newest change in it, seconds since the epoch.
    at: float
    #: `Agent.pk`, ascending.
    agents: npt.NDArray[np.uint32]
    #: Numbers of State, Reason and Recovery.
    states: npt.NDArray[np.uint8]
    reasons: npt.NDArray[np.uint8]
    recoveries: npt.NDArray[np.uint8]
    #: `Instance.pk`, 0 (NO_CAUSE_KEY) or -1 (BACKEND_CAUSE_KEY).
    causes: npt.NDArray[np.int32]
    #: `Instance.pk`, 0 (NO_AUTH_KEY) or NOT_RECORDED.
    auths: npt.NDArray[np.int32]
    #: Predicted recovery, seconds since the epoch; 0: none.
    recovers_at: npt.NDArray[np.float64]
    #: When the state began, seconds since the epoch.
    since: npt.NDArray[np.float64]
    #: `Instance.pk` of the current proxy: the agent's block on the map; 0: none.
    proxies: npt.NDArray[np.uint32]
    #: When an agent at risk becomes stranded, seconds since the epoch; 0: no deadline.
    strands_at: npt.NDArray[np.float64]
    #: AGENT_EVIDENCE; its ResourcePresence is NOT_RECORDED in changes of earlier versions.
    evidence: npt.NDArray[np.uint16]
    #: `Instance.pk` of the proxy that carries the auth connection; 0: none.
    via_proxies: npt.NDArray[np.uint32]
    #: Number of tunnels, or NOT_RECORDED.
    tunnel_counts: npt.NDArray[np.int16]
    #: `Instance.pk` of the proxy of each tunnel, the newest first: a run of `tunnel_counts` entries for each agent.
    tunnel_proxies: npt.NDArray[np.uint32]

    def with_agents(self, agents: npt.NDArray[np.uint32]) -> PastColumns:
        """Return a copy that has these agents (ascending) too; the new ones are unknown, since 0."""
        new_agents = np.setdiff1d(agents, self.agents, assume_unique=True)
        everyone = np.concatenate([self.agents, new_agents])
        order = np.argsort(everyone, kind="stable")
        blank = empty_columns(self.at, len(new_agents))

        def merge(name: str) -> npt.NDArray[np.generic]:
            merged_column: npt.NDArray[np.generic] = np.concatenate(
                [getattr(self, name), getattr(blank, name)]
            )[order]
            return merged_column

        # New agents have no tunnels, so the runs of the others keep their order.
        merged_columns = {name: merge(name) for name in COLUMN_NAMES if name != "agents"}
        return PastColumns(
            at=self.at,
            agents=everyone[order],
            tunnel_proxies=self.tunnel_proxies,
            **merged_columns,  # type: ignore[arg-type]
        )


#: Columns with one entry per agent.
COLUMN_NAMES = (
    *("agents", "states", "reasons", "recoveries", "causes", "auths", "recovers_at", "since", "proxies"),
    *("tunnel_counts", "strands_at", "evidence", "via_proxies"),
)


def empty_columns(at: float, agent_count: int = 0) -> PastColumns:
    """Return the columns of agents without a state."""
    return PastColumns(
        at=at,
        agents=np.zeros(agent_count, np.uint32),
        states=np.zeros(agent_count, np.uint8),
        reasons=np.zeros(agent_count, np.uint8),
        recoveries=np.zeros(agent_count, np.uint8),
        causes=np.zeros(agent_count, np.int32),
        auths=np.zeros(agent_count, np.int32),
        recovers_at=np.zeros(agent_count, np.float64),
        since=np.zeros(agent_count, np.float64),
        proxies=np.zeros(agent_count, np.uint32),
        strands_at=np.zeros(agent_count, np.float64),
        evidence=np.zeros(agent_count, AGENT_EVIDENCE),
        via_proxies=np.zeros(agent_count, np.uint32),
        tunnel_counts=np.zeros(agent_count, np.int16),
        tunnel_proxies=np.zeros(0, np.uint32),
    )
