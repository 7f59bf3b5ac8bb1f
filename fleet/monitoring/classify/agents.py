"""The verdict on one agent, with its reason, cause and recovery: docs/reference/verdicts.md.

`classify` is total and deterministic. The rules are tried in the order of the table there; the first that applies
wins. `columns.classify_columns` is its vectorised twin; a property test holds the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from fleet.monitoring.classify import recovery
from fleet.monitoring.classify.frame import FleetFrame, prepare_frame
from fleet.monitoring.classify.instance_conditions import InstanceCondition
from fleet.monitoring.classify.recovery import NOT_NEEDED, UNCLEAR, Outlook
from fleet.monitoring.classify.sentences import explain
from fleet.monitoring.classify.situation import ResourceState, Situation, read_situation
from fleet.monitoring.evidence import AgentEvidence, FleetEvidence, ReconnectMode
from fleet.vocabulary.instances import LOST_STATES, InstanceState
from fleet.vocabulary.verdicts import (
    BACKEND_CAUSE,
    NO_CAUSE,
    Reason,
    Recovery,
    State,
    Verdict,
    VerdictSentences,
)

#: Reasons whose sentences name a failing proxy, and then its cause.
_PROXY_REASONS = (Reason.PROXY_UNHEALTHY, Reason.PROXY_EXPIRED, Reason.TOO_FEW_TUNNELS)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A verdict without its sentence."""

    state: State
    reason: Reason = Reason.NONE
    cause: int = NO_CAUSE
    outlook: Outlook = NOT_NEEDED
    strands_at: float | None = None


def classify(agent: AgentEvidence, fleet: FleetEvidence, now: float) -> Verdict:
    """Return the verdict on one agent."""
    return classify_in(agent, prepare_frame(fleet, now))


def classify_in(agent: AgentEvidence, frame: FleetFrame) -> Verdict:
    """Return the verdict on one agent in a prepared frame."""
    situation = read_situation(agent, frame)
    diagnosis = _diagnose(situation)
    return Verdict(
        state=diagnosis.state,
        reason=diagnosis.reason,
        # The cause of a failing proxy is what must be repaired; the sentence names both.
        cause=_cause_id_of(frame.cause_of(diagnosis.cause), frame),
        recovery=diagnosis.outlook.recovery,
        recovers_at=diagnosis.outlook.recovers_at,
        strands_at=diagnosis.strands_at,
        sentences=explain(
            situation, diagnosis.state, diagnosis.reason, diagnosis.cause, diagnosis.outlook.recovery
        ),
    )


def explain_recorded(
    agent: AgentEvidence, frame: FleetFrame, state: State, reason: Reason, cause: int, recovery: Recovery
) -> VerdictSentences:
    """Return the sentences of a verdict that was concluded before, from the evidence that was kept of it.

    `cause`: the recorded cause, which of a failing proxy may be its auth.
    """
    situation = read_situation(agent, frame)
    # In the order of the rules: a missing tunnel is caused by its last proxy, the state of a live tunnel by its proxy.
    is_loss = state is State.STRANDED or reason is Reason.TOO_FEW_TUNNELS
    proxies = (situation.recent_proxies, situation.live_tunnels)
    candidates = (*chain.from_iterable(proxies if is_loss else proxies[::-1]), situation.via_proxy)
    has_proxy_cause = cause != NO_CAUSE and reason in _PROXY_REASONS
    direct_causes = (
        index
        for index in candidates
        if index is not None and situation.is_sick(index) and frame.cause_of(index) == cause
    )
    direct_cause = next(direct_causes, cause) if has_proxy_cause else cause
    return explain(situation, state, reason, direct_cause, recovery)


def _diagnose(situation: Situation) -> Diagnosis:
    for rule in (
        _match_retired,
        _match_unknown,
        _match_never,
        _match_unreachable,
        _match_at_risk,
        _match_working,
        _match_degraded,
        _match_excess,
    ):
        diagnosis = rule(situation)
        if diagnosis is not None:
            return diagnosis
    return Diagnosis(State.HEALTHY)


def _match_retired(s: Situation) -> Diagnosis | None:
    return Diagnosis(State.RETIRED) if s.agent.is_retired else None


def _match_unknown(s: Situation) -> Diagnosis | None:
    if s.frame.blind:
        return _diagnose_unknown()
    if s.frame.cluster_unreachable:
        return _diagnose_unknown(Reason.CLUSTER_UNREACHABLE)
    if not s.frame.has_tunnels and not s.frame.has_heartbeats:
        return _diagnose_unknown(Reason.NONE)
    proxies = {*s.agent.tunnels, *s.agent.last_proxies}
    feeds = [s.frame.conditions[index].is_feed_fresh for index in proxies if index in s.frame.conditions]
    if s.frame.presence_stale and not any(feeds):
        return _diagnose_unknown()
    # With a live tunnel the resource decides, and with a resource the tunnel decides.
    depends_on_resource = s.frame.has_heartbeats and (bool(s.live_tunnels) or not s.frame.has_tunnels)
    if depends_on_resource and s.resource is ResourceState.UNCLEAR:
        return _diagnose_unknown()
    if not s.live_tunnels and s.has_unread_tunnel and s.resource is not ResourceState.EXPIRED:
        return _diagnose_unknown()
    return None


def _match_never(s: Situation) -> Diagnosis | None:
    if not s.frame.has_tunnels or s.agent.had_tunnel or s.agent.tunnels or s.agent.last_proxies:
        return None
    if s.resource is ResourceState.EXPIRED or (
        s.resource is ResourceState.UNEXPIRED and s.frame.has_all_tunnel_reports
    ):
        return Diagnosis(State.NEVER)
    return _diagnose_unknown()


def _match_unreachable(s: Situation) -> Diagnosis | None:
    """Return stranded, offline, or unknown when the missing data may be at a source that was not read."""
    if s.is_reachable:
        return None
    carrier, proxies = s.blamed_carrier, s.blamed_proxies
    if s.resource is ResourceState.EXPIRED and carrier is not None:
        return _diagnose_stranded_by_carrier(s, carrier)
    if not s.live_tunnels and proxies:
        return _diagnose_stranded_by_proxy(s, proxies)
    if carrier is not None:
        return (
            Diagnosis(State.STRANDED, Reason.NO_TUNNEL, outlook=UNCLEAR)
            if s.has_live_heartbeat
            else _diagnose_stranded_by_carrier(s, carrier)
        )
    if s.live_tunnels:
        return _diagnose_stranded_with_tunnel(s)
    if s.resource is not ResourceState.EXPIRED and not s.frame.has_all_tunnel_reports:
        return _diagnose_unknown()
    if s.has_live_heartbeat:
        return Diagnosis(State.STRANDED, Reason.NO_TUNNEL, outlook=UNCLEAR)
    is_unclear = s.frame.has_heartbeats and s.resource is ResourceState.UNCLEAR
    if is_unclear or _depends_on_unknown_instance(s):
        return _diagnose_unknown()
    return Diagnosis(State.OFFLINE, Reason.OWN_HOST, outlook=UNCLEAR)


def _diagnose_stranded_by_carrier(s: Situation, carrier: int) -> Diagnosis:
    reason, cause, outlook = _attribute_resource_loss(s, carrier)
    return Diagnosis(State.STRANDED, reason, cause, outlook)


def _diagnose_stranded_by_proxy(s: Situation, blamed_proxies: tuple[int, ...]) -> Diagnosis:
    sick_proxies = [s.frame.conditions[index] for index in blamed_proxies]
    outlook = recovery.from_proxy(
        s.frame, sick_proxies[0], s.agent.heartbeat, silent_since=max(proxy.since for proxy in sick_proxies)
    )
    return Diagnosis(State.STRANDED, _proxy_reason_of(sick_proxies[0]), blamed_proxies[0], outlook)


def _diagnose_stranded_with_tunnel(s: Situation) -> Diagnosis:
    """Return the diagnosis of an agent with a live tunnel, without a resource, and without a failing instance."""
    heartbeat = s.agent.heartbeat
    if heartbeat is None and s.agent.last_auth is None:
        if not s.frame.all_auths_sick:
            # Proxies know the agent but no auth ever listed it: it may be new, or unable to send heartbeats.
            return _diagnose_unknown(Reason.DISAGREE)
        if s.frame.backend_down:
            outlook = recovery.ONLY_IF_CAUSE_RECOVERS
            return Diagnosis(State.STRANDED, Reason.BACKEND_DOWN, BACKEND_CAUSE, outlook)
        return Diagnosis(State.STRANDED, Reason.AUTH_UNHEALTHY, outlook=UNCLEAR)
    if heartbeat is not None and heartbeat.mode is ReconnectMode.PICK_FIRST:
        return Diagnosis(State.STRANDED, Reason.POLICY_OFF, outlook=UNCLEAR)
    return Diagnosis(State.STRANDED, Reason.RESOURCE_EXPIRED, outlook=UNCLEAR)


def _depends_on_unknown_instance(s: Situation) -> bool:
    dependencies = (*s.recent_proxies, *(index for index in (s.auth, s.via_proxy) if index is not None))
    return any(s.frame.state_of(index) is InstanceState.UNKNOWN for index in dependencies)


def _match_at_risk(s: Situation) -> Diagnosis | None:
    heartbeat = s.agent.heartbeat
    carrier = s.auth if s.is_sick(s.auth) else s.via_proxy if s.is_cut_off(s.via_proxy) else None
    if carrier is not None:
        assert heartbeat is not None, "a reachable agent with an auth has a resource"
        reason, cause, outlook = _attribute_resource_loss(s, carrier)
        return Diagnosis(State.AT_RISK, reason, cause, outlook, max(heartbeat.expires_at, s.frame.now))
    if s.live_tunnels and all(s.is_sick(index) for index in s.live_tunnels):
        return _diagnose_sick_proxies(s, State.AT_RISK)
    return None


def _match_working(s: Situation) -> Diagnosis | None:
    until = s.agent.working_until
    if until is None or until <= s.frame.now:
        return None
    return Diagnosis(State.WORKING, Reason.RECONNECTING, outlook=Outlook(Recovery.BY_ITSELF, until))


def _match_degraded(s: Situation) -> Diagnosis | None:
    if len(_live_desired_proxies_of(s)) < s.effective_desired_count:
        return _diagnose_too_few_tunnels(s)
    if sum(not s.is_sick(index) for index in _live_desired_proxies_of(s)) < s.effective_desired_count:
        return _diagnose_sick_proxies(s, State.DEGRADED)
    if s.via_proxy is not None and s.is_sick(s.via_proxy):
        reason = _proxy_reason_of(s.frame.conditions[s.via_proxy])
        return Diagnosis(State.DEGRADED, reason, s.via_proxy, UNCLEAR)
    degraded_index = _find_degraded_dependency(s)
    if degraded_index is not None:
        return Diagnosis(State.DEGRADED, Reason.INSTANCE_DEGRADED, degraded_index, UNCLEAR)
    claimed_count = 0 if s.agent.heartbeat is None else s.agent.heartbeat.claimed_count
    if claimed_count > len(s.agent.tunnels) and s.frame.has_all_tunnel_reports and s.is_disagreeing:
        return Diagnosis(State.DEGRADED, Reason.DISAGREE, outlook=UNCLEAR)
    return None


def _diagnose_too_few_tunnels(s: Situation) -> Diagnosis:
    cause = next((index for index in s.recent_proxies if s.is_sick(index)), None)
    if cause is None:
        return Diagnosis(State.DEGRADED, Reason.TOO_FEW_TUNNELS, outlook=UNCLEAR)
    proxy = s.frame.conditions[cause]
    outlook = recovery.from_proxy(
        s.frame, proxy, s.agent.heartbeat, silent_since=None, healthy_tunnel_count=s.healthy_tunnel_count
    )
    return Diagnosis(State.DEGRADED, Reason.TOO_FEW_TUNNELS, cause, outlook)


def _diagnose_sick_proxies(s: Situation, state: State) -> Diagnosis:
    cause = next(index for index in s.live_tunnels if s.is_sick(index))
    proxy = s.frame.conditions[cause]
    outlook = recovery.from_proxy(
        s.frame, proxy, s.agent.heartbeat, silent_since=None, healthy_tunnel_count=s.healthy_tunnel_count
    )
    return Diagnosis(state, _proxy_reason_of(proxy), cause, outlook)


def _find_degraded_dependency(s: Situation) -> int | None:
    dependency_indices = (s.auth, s.via_proxy, *s.live_tunnels)
    instances = (
        s.frame.conditions[i] for i in dependency_indices if i is not None and i in s.frame.conditions
    )
    return next((instance.facts.index for instance in instances if instance.is_degraded), None)


def _match_excess(s: Situation) -> Diagnosis | None:
    desired_count = 0 if s.agent.heartbeat is None else s.agent.heartbeat.desired_count
    # In a mesh no tunnel is excess: the agent wants one to every desired proxy.
    if 0 < desired_count < len(_live_desired_proxies_of(s)):
        return Diagnosis(State.EXCESS, Reason.TOO_MANY_TUNNELS)
    return None


def _live_desired_proxies_of(s: Situation) -> list[int]:
    return [index for index in s.live_tunnels if s.frame.conditions[index].is_desired]


def _attribute_resource_loss(s: Situation, index: int) -> tuple[Reason, int, Outlook]:
    """Return reason, cause and outlook of a resource that is lost, or will be, because of the instance at `index`."""
    instance = s.frame.conditions[index]
    heartbeat = s.agent.heartbeat
    if index == s.auth:
        outlook = recovery.from_auth(s.frame, instance, heartbeat)
        if s.frame.backend_down:
            return Reason.BACKEND_DOWN, BACKEND_CAUSE, outlook
        return Reason.AUTH_UNHEALTHY, index, outlook
    assert heartbeat is not None, "only a heartbeat names the proxy before the auth"
    return _proxy_reason_of(instance), index, recovery.from_via_proxy(s.frame, instance, heartbeat)


def _proxy_reason_of(proxy: InstanceCondition) -> Reason:
    if proxy.state in LOST_STATES:
        return Reason.PROXY_EXPIRED
    return Reason.PROXY_UNHEALTHY


def _diagnose_unknown(reason: Reason = Reason.STALE) -> Diagnosis:
    return Diagnosis(State.UNKNOWN, reason, outlook=UNCLEAR)


def _cause_id_of(cause: int, frame: FleetFrame) -> str:
    if cause == NO_CAUSE:
        return ""
    if cause == BACKEND_CAUSE:
        return f"backend/{frame.cluster}"
    return frame.conditions[cause].facts.id
