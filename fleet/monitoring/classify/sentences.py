"""Verdicts in one or two sentences for people: with names, without times (pages show times beside them)."""

from __future__ import annotations

from fleet.monitoring.classify.frame import FleetFrame
from fleet.monitoring.classify.situation import ResourceState, Situation
from fleet.monitoring.evidence import ReconnectMode
from fleet.vocabulary.name_lists import join_names
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State, VerdictSentences


def explain(s: Situation, state: State, reason: Reason, cause: int, recovery: Recovery) -> VerdictSentences:
    """Return why an agent has its state, and whether and how it recovers."""
    return VerdictSentences(
        _state_sentence(s, state, reason, cause), _recovery_sentence(s, state, cause, recovery)
    )


def _state_sentence(s: Situation, state: State, reason: Reason, cause: int) -> str:
    if state is State.UNKNOWN:
        return _unknown_sentence(s, reason)
    if state is State.RETIRED:
        return "An operator retired this agent."
    if state is State.NEVER:
        return "The agent is enrolled but has never had a tunnel."
    if state is State.STRANDED:
        return _stranded_sentence(s, reason, cause)
    if state is State.OFFLINE and not s.frame.has_tunnels:
        return "The agent's heartbeat has expired, and that of its auth has not: check the host of the agent."
    if state is State.OFFLINE and not s.frame.has_heartbeats:
        return "The agent has no live tunnel, but its proxies are OK: check its host."
    if state is State.OFFLINE:
        return (
            "The agent has no heartbeat and no live tunnel, but its auth and proxies are OK: check its host."
        )
    if state is State.AT_RISK:
        return _at_risk_sentence(s, reason, cause)
    if state is State.WORKING:
        return "A reconnect requested by Refloat is in progress."
    if state is State.DEGRADED:
        return _degraded_sentence(s, reason, cause)
    if state is State.EXCESS:
        return f"The agent has {len(s.live_tunnels)} tunnels, but its desired count is {_desired_count(s)}."
    if not s.frame.has_tunnels:
        return f"The agent's heartbeat has not expired, and {_auth_name(s)} receives its heartbeats."
    proxies = _join_names(s.live_tunnels, s.frame)
    if not s.frame.has_heartbeats:
        return f"The agent is reachable through {proxies}."
    return f"The agent is reachable through {proxies}, and {_auth_name(s)} receives its heartbeats."


def _unknown_sentence(s: Situation, reason: Reason) -> str:
    if s.frame.blind:
        return "Refloat's own pollers missed polls or failed their self-test."
    if reason is Reason.CLUSTER_UNREACHABLE:
        return (
            "No instance of the cluster responds, although Refloat's connection test to itself passes: check the "
            "network between Refloat and the cluster."
        )
    if reason is Reason.DISAGREE:
        proxies = _join_names(s.live_tunnels, s.frame)
        return f"The agent has a tunnel to {proxies}, but no auth has ever listed the agent."
    if reason is Reason.NONE:
        return "The source of this cluster does not report whether its agents are connected."
    return "Refloat has too little recent data to determine the state of this agent."


def _stranded_sentence(s: Situation, reason: Reason, cause: int) -> str:
    if reason is Reason.NO_TUNNEL:
        return "The agent sends heartbeats, but no proxy reports a tunnel to it."
    loss = "The agent's heartbeat has expired"
    if s.frame.all_auths_sick:
        loss = "The agent's heartbeat must have expired by now"
    if reason is Reason.RESOURCE_EXPIRED:
        return f"{loss}, although the agent has a live tunnel and {_auth_name(s)} is OK."
    if reason is Reason.POLICY_OFF:
        return f"{loss}, although {_auth_name(s)} is OK; with pick_first the agent looks for no other auth."
    if reason is Reason.BACKEND_DOWN:
        loss = loss if s.resource is ResourceState.EXPIRED else "The agent has no tunnel"
        return f"{loss}: all auths failed together, so their backend is the likely cause."
    if cause == NO_CAUSE:
        return f"{loss}: no auth is OK."
    if cause == s.auth and cause not in s.recent_proxies:
        loss = loss if s.resource is ResourceState.EXPIRED else "The agent has no tunnel"
        return f"{loss}: its auth {_complaint_clause(cause, s.frame)}."
    if s.live_tunnels:
        return (
            f"{loss}: {_complaint_clause(cause, s.frame)}, and the agent reaches its auth through this proxy."
        )
    return f"The agent has no live tunnel: {_complaint_clause(cause, s.frame)}."


def _at_risk_sentence(s: Situation, reason: Reason, cause: int) -> str:
    if cause == BACKEND_CAUSE:
        return "All auths failed together, so no auth accepts the agent's heartbeats."
    if cause == s.auth:
        return f"The agent's auth {_complaint_clause(cause, s.frame)} and does not accept the agent's heartbeats."
    if cause == s.via_proxy and cause not in s.live_tunnels:
        proxy_clause = f"{s.frame.name_of(cause)}, which {s.frame.complaint_of(cause)}"
        return f"The agent's auth connection goes through {proxy_clause}."
    return f"No proxy that the agent is connected to is OK: {_complaint_clause(cause, s.frame)}."


def _degraded_sentence(s: Situation, reason: Reason, cause: int) -> str:
    if reason is Reason.TOO_FEW_TUNNELS:
        tunnels = "1 tunnel" if s.effective_desired_count == 1 else f"{s.effective_desired_count} tunnels"
        text = f"The agent should have {tunnels} to current proxies but has fewer"
        return f"{text}: {_complaint_clause(cause, s.frame)}." if cause != NO_CAUSE else f"{text}."
    if reason is Reason.DISAGREE:
        return "The agent reports more tunnels than the proxies do."
    if reason is Reason.INSTANCE_DEGRADED:
        return f"The agent depends on {s.frame.name_of(cause)}, which is degraded."
    return f"The agent depends on a proxy that is not OK: {_complaint_clause(cause, s.frame)}."


def _recovery_sentence(s: Situation, state: State, cause: int, recovery: Recovery) -> str:
    if state is State.WORKING or recovery in (Recovery.NOT_NEEDED, Recovery.UNCLEAR):
        return ""
    if recovery is Recovery.BY_ITSELF:
        return "The agent recovers automatically."
    heartbeat = s.agent.heartbeat
    keeps_auth_connection = cause == s.auth and s.frame.ok_auth_count > 0
    if keeps_auth_connection and heartbeat is not None and heartbeat.mode is ReconnectMode.PICK_FIRST:
        return (
            f"No automatic recovery: with pick_first, the agent keeps its connection until "
            f"{s.frame.name_of(cause)} recovers or a campaign moves the agent."
        )
    if keeps_auth_connection:
        return (
            f"No automatic recovery: without health checks, the agent keeps its connection until "
            f"{s.frame.name_of(cause)} recovers or a campaign moves the agent."
        )
    root_cause = s.frame.cause_of(cause)
    if root_cause == BACKEND_CAUSE:
        return "The agent recovers only when the backend recovers."
    return f"The agent recovers only when {s.frame.name_of(root_cause)} recovers: no other instance is available."


def _complaint_clause(index: int, frame: FleetFrame) -> str:
    clause = frame.cause_clause(index)
    return f"{frame.name_of(index)} {frame.complaint_of(index)}" + (f" because {clause}" if clause else "")


def _auth_name(s: Situation) -> str:
    return "its auth" if s.auth is None else s.frame.name_of(s.auth)


def _desired_count(s: Situation) -> int:
    return 0 if s.agent.heartbeat is None else s.agent.heartbeat.desired_count


def _join_names(indices: tuple[int, ...], frame: FleetFrame) -> str:
    return join_names([frame.name_of(index) for index in indices]) or "no proxy"
