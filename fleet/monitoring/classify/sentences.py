"""A finding in one or two sentences for a person: names, no times (pages show those beside it)."""

from __future__ import annotations

from fleet.monitoring.classify.frame import FleetFrame
from fleet.monitoring.classify.situation import ResourceState, Situation
from fleet.monitoring.evidence import ReconnectMode
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State


def explain(s: Situation, state: State, reason: Reason, cause: int, recovery: Recovery) -> str:
    """Say what was concluded and why, then whether it will recover by itself."""
    sentences = (_state_sentence(s, state, reason, cause), _recovery_sentence(s, state, cause, recovery))
    return " ".join(sentence for sentence in sentences if sentence)


def _state_sentence(s: Situation, state: State, reason: Reason, cause: int) -> str:
    if state is State.UNKNOWN:
        return _unknown_sentence(s, reason)
    if state is State.RETIRED:
        return "An operator retired it."
    if state is State.NEVER:
        return "It is enrolled, but never had a tunnel."
    if state is State.STRANDED:
        return _stranded_sentence(s, reason, cause)
    if state is State.OFFLINE:
        return "It has no tunnel and gives no sign of life, while its auth and proxies are fine: look at its own host."
    if state is State.AT_RISK:
        return _at_risk_sentence(s, reason, cause)
    if state is State.WORKING:
        return "A reconnect we asked for is under way."
    if state is State.DEGRADED:
        return _degraded_sentence(s, reason, cause)
    if state is State.EXCESS:
        return f"It holds {len(s.live)} tunnels, more than the {_desired_count(s)} it wants."
    return f"It is reachable through {_name_list(s.live, s.frame)}, and {_auth_name(s)} lists it."


def _unknown_sentence(s: Situation, reason: Reason) -> str:
    if s.frame.blind:
        return "Our own pollers are blind."
    if reason is Reason.CLUSTER_UNREACHABLE:
        return "No instance of the cluster answers, while our own probe is good."
    if reason is Reason.DISAGREE:
        return f"{_name_list(s.live, s.frame)} has a tunnel of it, but no auth ever listed it."
    return "Nothing fresh covers it."


def _stranded_sentence(s: Situation, reason: Reason, cause: int) -> str:
    if reason is Reason.NO_TUNNEL:
        return "It heartbeats, but no proxy has a tunnel of it."
    loss = "Its resource expired"
    if s.frame.frozen:
        loss += " by prediction"
    if reason is Reason.RESOURCE_EXPIRED:
        return f"{loss}, though it has a live tunnel and {_auth_name(s)} is fine."
    if reason is Reason.POLICY_OFF:
        return f"{loss}, though {_auth_name(s)} is fine; with pick_first it looks for no other."
    if reason is Reason.BACKEND_DOWN:
        loss = loss if s.resource is ResourceState.EXPIRED else "It has no tunnel"
        return f"{loss}: all auth servers fell sick together, so their backend is the likely cause."
    if cause == NO_CAUSE:
        return f"{loss}: every auth server is sick."
    if cause == s.auth and cause not in s.recent_proxies:
        loss = loss if s.resource is ResourceState.EXPIRED else "It has no tunnel"
        return f"{loss}: its auth {_complaint_clause(cause, s.frame)}."
    if s.live:
        return f"{loss}: {_complaint_clause(cause, s.frame)}, and its auth connection goes through it."
    return f"It has no live tunnel: {_complaint_clause(cause, s.frame)}."


def _at_risk_sentence(s: Situation, reason: Reason, cause: int) -> str:
    if cause == BACKEND_CAUSE:
        return "All auth servers fell sick together, so nobody renews its resource."
    if cause == s.auth:
        return f"Its auth {_complaint_clause(cause, s.frame)} and will not renew its resource."
    if cause == s.via_proxy and cause not in s.live:
        return f"Its auth connection goes through {s.frame.name_of(cause)}, which {_complaint(cause, s.frame)}."
    return f"Every live tunnel of it ends at a sick proxy: {_complaint_clause(cause, s.frame)}."


def _degraded_sentence(s: Situation, reason: Reason, cause: int) -> str:
    if reason is Reason.TOO_FEW_TUNNELS:
        text = f"It wants {s.effective_desired_count} tunnels and has fewer"
        return f"{text}: {_complaint_clause(cause, s.frame)}." if cause != NO_CAUSE else f"{text}."
    if reason is Reason.DISAGREE:
        return "It claims more tunnels than the proxies report."
    if reason is Reason.INSTANCE_DEGRADED:
        return f"It rests on {s.frame.name_of(cause)}, which is degraded."
    return f"It partly rests on a sick proxy: {_complaint_clause(cause, s.frame)}."


def _recovery_sentence(s: Situation, state: State, cause: int, recovery: Recovery) -> str:
    if state is State.WORKING or recovery in (Recovery.NOT_NEEDED, Recovery.UNCLEAR):
        return ""
    if recovery is Recovery.BY_ITSELF:
        return "It will recover by itself."
    heartbeat = s.agent.heartbeat
    keeps_auth_connection = cause == s.auth and s.frame.ok_auth_count > 0
    if keeps_auth_connection and heartbeat is not None and heartbeat.mode is ReconnectMode.PICK_FIRST:
        return f"With pick_first it keeps that connection: only if {s.frame.name_of(cause)} recovers."
    if keeps_auth_connection:
        return f"Without health checks it keeps that connection: only if {s.frame.name_of(cause)} recovers."
    root = s.frame.cause_of(cause)
    if root == BACKEND_CAUSE:
        return "It will be back only when the backend is."
    return f"There is no healthy one to go to: only if {s.frame.name_of(root)} recovers."


def _complaint_clause(index: int, frame: FleetFrame) -> str:
    clause = frame.cause_clause(index)
    return f"{frame.name_of(index)} {_complaint(index, frame)}" + (f" because {clause}" if clause else "")


def _complaint(index: int, frame: FleetFrame) -> str:
    return frame.state_of(index).look.complaint


def _auth_name(s: Situation) -> str:
    return "its auth" if s.auth is None else s.frame.name_of(s.auth)


def _desired_count(s: Situation) -> int:
    return 0 if s.agent.heartbeat is None else s.agent.heartbeat.desired


def _name_list(indices: tuple[int, ...], frame: FleetFrame) -> str:
    names = [frame.name_of(index) for index in indices]
    return (
        names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "no proxy"
    )
