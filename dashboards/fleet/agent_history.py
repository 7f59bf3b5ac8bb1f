"""History of one agent for its page and the API: changes of its state, and moves to other auths and proxies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np

from dashboards.shared.presenters import age_ms_of
from fleet.models.history import BACKEND_CAUSE_KEY, LAST_PROXY_BIT, AgentChange
from fleet.models.inventory import Agent, Instance
from fleet.models.moments import to_moment
from fleet.vocabulary.name_lists import join_names
from fleet.vocabulary.natural_order import natural_sort_key
from fleet.vocabulary.verdicts import Reason, Recovery, State


@dataclass(frozen=True, slots=True)
class AgentChangeRow:
    """One change of an agent's state or place."""

    at: datetime
    age_ms: int | None
    #: Equal if the state did not change.
    old: State
    new: State
    #: Code and name of the reason after the change; empty without a reason.
    reason: str
    reason_label: str
    recovery: Recovery
    #: Predicted recovery, or None.
    recovers_at: datetime | None
    #: Name of the cause after the change, `backend/<cluster>`, or empty.
    cause: str
    #: Names of the auth and of the proxies with a tunnel after the change; None: not recorded.
    auth: str | None
    proxies: tuple[str, ...] | None
    #: Moves in words: `moved from proxy-1 to proxy-3`.
    moves: tuple[str, ...]

    @property
    def has_new_state(self) -> bool:
        """Return whether the state changed."""
        return self.old is not self.new


def read_agent_changes(
    cluster: str, agent_id: str, now: float, limit: int, before: float | None = None
) -> list[AgentChangeRow] | None:
    """Return the newest changes of an agent before a time (seconds since the epoch), newest first; None: no such agent.

    After the last of them come the first and last change of state that the agent's row keeps of the deleted history.
    """
    agent = Agent.objects.filter(cluster=cluster, agent_id=agent_id).first()
    if agent is None:
        return None
    query = AgentChange.objects.filter(agent=agent)
    # One more, because a move shows only in the difference to the change before it.
    changes = list((query if before is None else query.filter(at__lt=before))[: limit + 1])
    if len(changes) <= limit:
        changes += [change for change in _kept_changes_of(agent) if before is None or change.at < before]
    names = dict(Instance.objects.filter(cluster=cluster).values_list("pk", "name"))
    return [
        _row_of(change, earlier, names, cluster, now)
        for change, earlier in pairwise([*changes[: limit + 1], None])
        if change is not None
    ][:limit]


def _kept_changes_of(agent: Agent) -> list[AgentChange]:
    """Return the changes in the agent's row, newest first."""
    documents = [document for document in (agent.last_deleted_change, agent.first_change) if document]
    if len(documents) == 2 and documents[0] == documents[1]:
        documents.pop()
    return [_change_of(agent, document) for document in documents]


def _change_of(agent: Agent, document: Mapping[str, Any]) -> AgentChange:
    proxies = document["proxies"]
    return AgentChange(
        **{**document, "agent": agent, "proxies": None if proxies is None else bytes.fromhex(proxies)}
    )


def _row_of(
    change: AgentChange, earlier: AgentChange | None, names: Mapping[int, str], cluster: str, now: float
) -> AgentChangeRow:
    reason = Reason(change.reason)

    def name_of(key: int) -> str:
        return names.get(key, "an unknown instance")

    proxies = _proxy_keys_of(change)
    return AgentChangeRow(
        at=to_moment(change.at),
        age_ms=age_ms_of(change.at, now),
        old=State(change.old),
        new=State(change.new),
        reason="" if reason is Reason.NONE else reason.slug,
        reason_label="" if reason is Reason.NONE else reason.label,
        recovery=Recovery(change.recovery),
        recovers_at=None if change.recovers_at is None else to_moment(change.recovers_at),
        cause=f"backend/{cluster}" if change.cause == BACKEND_CAUSE_KEY else names.get(change.cause, ""),
        auth=None if change.auth is None else names.get(change.auth, ""),
        proxies=None if proxies is None else tuple(name_of(key) for key in proxies),
        moves=() if earlier is None else tuple(_describe_moves(change, earlier, name_of)),
    )


def _proxy_keys_of(change: AgentChange) -> list[int] | None:
    """Return the keys of the proxies with a tunnel; None: not recorded."""
    if change.proxies is None:
        return None
    keys: list[int] = np.frombuffer(bytes(change.proxies), "<u4").tolist()
    return [key for key in keys if key < LAST_PROXY_BIT]


def _describe_moves(change: AgentChange, earlier: AgentChange, name_of: Callable[[int], str]) -> list[str]:
    """Return what changed of the agent's auth and tunnels, in words."""
    moves = []
    proxies, earlier_proxies = _proxy_keys_of(change), _proxy_keys_of(earlier)
    if proxies is not None and earlier_proxies is not None:
        new_proxies = [name_of(key) for key in proxies if key not in earlier_proxies]
        ended_proxies = [name_of(key) for key in earlier_proxies if key not in proxies]
        if new_proxies and ended_proxies:
            moves.append(f"moved from {_join_sorted(ended_proxies)} to {_join_sorted(new_proxies)}")
        elif new_proxies:
            moves.append(
                f"opened {'tunnels' if len(new_proxies) > 1 else 'a tunnel'} to {_join_sorted(new_proxies)}"
            )
        elif ended_proxies:
            moves.append(
                f"{'tunnels' if len(ended_proxies) > 1 else 'tunnel'} to {_join_sorted(ended_proxies)} ended"
            )
    if change.auth and earlier.auth is not None and change.auth != earlier.auth:
        new_name = name_of(change.auth)
        moves.append(
            f"moved from {name_of(earlier.auth)} to {new_name}"
            if earlier.auth
            else f"connected to {new_name}"
        )
    return moves


def _join_sorted(names: Sequence[str]) -> str:
    return join_names(sorted(names, key=natural_sort_key))
