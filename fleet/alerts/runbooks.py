"""Built-in runbooks, one per kind of alert rule. Pure. docs/reference/alerts.md, "Runbooks".

Rules without a runbook of their own link to these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.alerts.rules import RuleKind
from fleet.alerts.wording.failure_clauses import refuses_connections
from fleet.monitoring.views import InstanceView
from fleet.vocabulary.instances import (
    READYZ_DEGRADED,
    SICK_STATES,
    InstanceFacts,
    InstanceKind,
    InstanceState,
)


@dataclass(frozen=True, slots=True)
class Runbook:
    """A runbook: meaning of the incident, diagnosis steps in order, and remedies."""

    meaning: str
    diagnosis: tuple[str, ...]
    mitigation: tuple[str, ...]


RUNBOOKS: Mapping[RuleKind, Runbook] = {
    RuleKind.STRANDED: Runbook(
        "Agents are unreachable: none of their tunnels ends at a working proxy with a current heartbeat, or their auth "
        "is failing and their own heartbeats have expired.",
        (
            "Check the Cause card of the incident: does the proxy or auth respond, and when was its last heartbeat?",
            "Check the heat map of the incident: one row with high shares means a proxy, one column an auth.",
            "Check the recovery: agents that know other proxies are back after one announce TTL. Is that soon enough?",
            "Check “Changes in the 30 min before” on the page of the incident: campaigns, rollouts, new versions.",
        ),
        (
            "Auth: restore it, or reconnect its agents to another auth with a campaign, even if it is not responding.",
            "Proxy: restore it, or stop it for good. After its heartbeat expires, its agents look for other proxies.",
            "Unhealthy proxy: start a reconnect campaign while it still responds; later its agents cannot be moved.",
            "If the agents do not recover automatically, restart them on their hosts.",
        ),
    ),
    RuleKind.AT_RISK: Runbook(
        "Agents are still reachable, but the proxy or auth they depend on is failing. They may become stranded soon.",
        (
            "Check the Cause card: is the instance unhealthy, expired or not responding, and since when?",
            "Check whether the number of agents grows: the trend is at the top of the incident.",
        ),
        (
            "Start a reconnect campaign while the tunnels are up. Without tunnels Refloat cannot move the agents.",
            "Drain the proxy if you have to restart it.",
        ),
    ),
    RuleKind.INSTANCE: Runbook(
        "An auth or a proxy is not responding, reports itself as unhealthy, or its heartbeat has expired.",
        (
            "Not responding: check host, network and process. Unhealthy: check its /readyz, health service and log.",
            "Expired but responding: it cannot write its heartbeat. Check the auth and the auth backend.",
            "Check its agents, and how many of them have no other tunnel.",
        ),
        (
            "Reconnect its agents elsewhere with a campaign. For an auth this works even if it is not responding.",
            "Restart it. If it still responds, drain it first.",
            "Silence the incident during planned work.",
        ),
    ),
    RuleKind.BACKEND: Runbook(
        "All auths failed within one announce TTL. The likely cause is the auth backend, which they share.",
        (
            "Check the backend: does it respond, is its disk full, has its certificate expired?",
            "Check the network between the auths and the backend.",
            "Do not investigate proxies and agents: their state follows from the backend.",
        ),
        (
            "Restore the backend. Heartbeats are written again within one TTL, and the agents recover automatically.",
            "Do not restart proxies meanwhile: their tunnels work, and their agents could not find other proxies.",
        ),
    ),
    RuleKind.UNREACHABLE: Runbook(
        "No instance of the cluster responds, although Refloat's connection test to itself (self-probe) succeeds.",
        (
            "Check the connection from Refloat to the cluster: routes, firewall, certificates, DNS.",
            "Check whether users can connect. If they can, only Refloat is cut off.",
        ),
        ("Restore the connection. Until then the state of all agents is unknown, which is correct.",),
    ),
    RuleKind.RATE: Runbook(
        "Many agents were lost within one minute, and no cause explains all of them.",
        (
            "Check the heat map of the incident and the agents: do they share a network, a site or a version?",
            "Check the changes: is a reconnect campaign or a rollout running?",
        ),
        (
            "Pause running changes.",
            "If a network is down, contact its operator. The agents recover automatically when the network does.",
        ),
    ),
    RuleKind.EXCESS: Runbook(
        "Agents have more tunnels than they need: after a failover, or because graceful tunnel closing is off.",
        ("Check for a recent failover: with graceful tunnel closing, excess tunnels are closed after a while.",),
        (
            "Plan a change of the networking config that enables graceful tunnel closing, and check its preview.",
            "This is not urgent.",
        ),
    ),
    RuleKind.DRIFT: Runbook(
        "Instances do not match their desired policies, or agents use another reconnect policy than the majority.",
        ("Check the Policies page: which instance, which setting, and whether a restart is pending.",),
        ("Restart it with the settings shown on that page, or change the desired values.", "This is not urgent."),
    ),
    RuleKind.BLIND: Runbook(
        "Refloat receives no monitoring data: no poll of the fleet has completed, or the self-probe fails. The state "
        "of the fleet is unknown.",
        (
            "Check the processes of Refloat: pollers, scheduler (beat), Redis. Their logs are in REFLOAT_HOME/log.",
            "Check Redis: does it respond, is its memory full? Redis needs no backup: Refloat rebuilds its data.",
            "If the self-probe (Refloat's connection test to itself) fails, check the network of the Refloat host.",
        ),
        ("Restart the failed processes. Until Refloat sees the fleet again, it sends no notifications about agents.",),
    ),
}  # fmt: skip


def repair_steps_of(view: InstanceView, heartbeat_auth: str = "") -> tuple[str, ...]:
    """Return what to do about an instance as sentences, in order; only that it is not failing, if it is not.

    `heartbeat_auth`: name of the auth through which a proxy sends heartbeats; empty if not known.
    """
    name = view.facts.name
    if view.state not in SICK_STATES:
        return (f"{name} is not failing: there is nothing to repair.",)
    return (
        _describe_repair(view, heartbeat_auth or "its auth"),
        f"Refloat notices by itself, in the next round, that {name} is back, and resolves its incident.",
        _describe_removal(view),
    )


def _describe_repair(view: InstanceView, heartbeat_auth: str) -> str:
    """Return how to end the failure, as far as the polls tell why the instance fails."""
    facts = view.facts
    name, address = facts.name, facts.address or "its address"
    match view.state:
        case InstanceState.SILENT if refuses_connections(facts):
            return f"Start {name} again: its host responds, but nothing listens at {address}. Read its log first."
        case InstanceState.SILENT:
            return (
                f"Check the host of {name}, the network to {address}, and whether its process runs. "
                "Start it again if it has ended or hangs."
            )
        case InstanceState.GONE:
            return f"{name} ended and deregistered itself. Start it again if that was not intended."
        case _ if facts.readyz == READYZ_DEGRADED and facts.kind is InstanceKind.AUTH:
            return f"Check the auth backend, and the network from {name} to it. {name} itself responds."
        case _ if facts.readyz == READYZ_DEGRADED:
            return f"Check {heartbeat_auth}, and the network from {name} to it. {name} itself responds."
        case _:
            return f"Read the log of {name}{_describe_readyz(facts)}. If it does not recover, drain and restart it."


def _describe_readyz(facts: InstanceFacts) -> str:
    return f" and http://{facts.diag_address}/readyz" if facts.diag_address else ""


def _describe_removal(view: InstanceView) -> str:
    """Return what happens with an instance that does not come back: it cannot be removed by hand."""
    name = view.facts.name
    if view.state is InstanceState.GONE:
        return f"Otherwise there is nothing to do: agents look for other instances without {name}."
    return (
        f"If {name} is gone for good, silence its incident. Its agents look for other instances when its heartbeat has "
        f"expired. 10 min after that, Refloat no longer polls {name}, and lists it as expired."
    )
