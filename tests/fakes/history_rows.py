"""Rows of the history, by names: agents and instances get the rows that they need."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleet.models.clusters import ensure_default_cluster
from fleet.models.history import BACKEND_CAUSE_KEY, NO_CAUSE_KEY, AgentChange, InstanceChange
from fleet.models.inventory import Agent, Instance
from fleet.vocabulary.verdicts import Reason, Recovery, State


def agent_key(agent_id: str, cluster: str = "default") -> int:
    """Return the key of an agent, created when it has none."""
    columns = {"name": agent_id.removesuffix("-id"), "position": Agent.objects.count()}
    return Agent.objects.get_or_create(cluster_id=cluster, agent_id=agent_id, defaults=columns)[0].pk


def instance_key(instance_id: str, cluster: str = "default") -> int:
    """Return the key of an instance, created when it has none."""
    kind = "auth" if instance_id.startswith("auth") else "proxy"
    columns = {"kind": kind, "name": instance_id.removesuffix("-id"), "position": Instance.objects.count()}
    return Instance.objects.get_or_create(cluster_id=cluster, instance_id=instance_id, defaults=columns)[0].pk


def create_agent_change(
    agent_id: str,
    at: float,
    old: State,
    new: State,
    *,
    reason: Reason = Reason.NO_TUNNEL,
    recovery: Recovery = Recovery.UNCLEAR,
    cause: str = "",
    auth: str | None = None,
    proxies: Sequence[str] | None = None,
    recovers_at: float | None = None,
    cluster: str = "default",
) -> AgentChange:
    """Create one change; `cause`, `auth` and `proxies` are instance ids, or `backend/<cluster>`."""
    ensure_default_cluster()
    keys = None if proxies is None else [instance_key(proxy, cluster) for proxy in proxies]
    return AgentChange.objects.create(
        agent_id=agent_key(agent_id, cluster),
        at=at,
        old=old,
        new=new,
        reason=reason,
        recovery=recovery,
        cause=BACKEND_CAUSE_KEY
        if cause.startswith("backend/")
        else instance_key(cause, cluster)
        if cause
        else NO_CAUSE_KEY,
        auth=None if auth is None else instance_key(auth, cluster),
        proxies=None if keys is None else np.array(keys, "<u4").tobytes(),
        recovers_after_ms=0 if recovers_at is None else round((recovers_at - at) * 1000),
    )


def create_instance_change(
    instance: str, at: float, old: str, new: str, round_number: int = 1, cluster: str = "default"
) -> InstanceChange:
    """Create one change of an instance's state."""
    ensure_default_cluster()
    return InstanceChange.objects.create(
        cluster_id=cluster, instance=instance, old=old, new=new, at=at, round=round_number
    )
