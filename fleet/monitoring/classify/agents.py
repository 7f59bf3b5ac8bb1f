"""The verdict on one agent, with everything a person needs to believe it: docs/verdicts.md.

`classify` is total and deterministic. The rules are tried in the order of the table there; the first that finds
something wins. `columns.classify_columns` is its vectorised twin; a law test holds the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.monitoring.classify import recovery
from fleet.monitoring.classify.frame import FleetFrame, prepare
from fleet.monitoring.classify.recovery import NOT_NEEDED, UNCLEAR, Outlook
from fleet.monitoring.classify.sentences import explain
from fleet.monitoring.classify.situation import Resource, Situation, read
from fleet.monitoring.classify.standings import Standing
from fleet.monitoring.evidence import AgentEvidence, FleetEvidence, Mode
from fleet.vocabulary.instances import LOST, InstanceState
from fleet.vocabulary.verdicts import BACKEND_CAUSE, NO_CAUSE, Reason, Recovery, State, Verdict


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict before it is put into words."""

    state: State
    reason: Reason = Reason.NONE
    cause: int = NO_CAUSE
    outlook: Outlook = NOT_NEEDED
    strands_at: float | None = None


def classify(agent: AgentEvidence, fleet: FleetEvidence, now: float) -> Verdict:
    """Conclude what has become of one agent, and say why."""
    return classify_in(agent, prepare(fleet, now))


def classify_in(agent: AgentEvidence, frame: FleetFrame) -> Verdict:
    """Conclude as `classify` does, in a frame that is prepared already."""
    situation = read(agent, frame)
    finding = _find(situation)
    return Verdict(
        state=finding.state,
        reason=finding.reason,
        # What a proxy suffers from is what must be mended; the sentence has both.
        cause=_cause_id(frame.cause_of(finding.cause), frame),
        recovery=finding.outlook.recovery,
        recovers_at=finding.outlook.at,
        strands_at=finding.strands_at,
        sentence=explain(situation, finding.state, finding.reason, finding.cause, finding.outlook.recovery),
    )


def _find(situation: Situation) -> Finding:
    for rule in (_retired, _unknown, _never, _unreachable, _at_risk, _working, _degraded, _excess):
        finding = rule(situation)
        if finding is not None:
            return finding
    return Finding(State.HEALTHY)


def _retired(s: Situation) -> Finding | None:
    return Finding(State.RETIRED) if s.agent.retired else None


def _unknown(s: Situation) -> Finding | None:
    if s.frame.blind:
        return _not_known()
    if s.frame.unreachable:
        return _not_known(Reason.CLUSTER_UNREACHABLE)
    proxies = {*s.agent.tunnels, *s.agent.last_proxies}
    feeds = [s.frame.standings[index].feed_fresh for index in proxies if index in s.frame.standings]
    if s.frame.presence_stale and not any(feeds):
        return _not_known()
    # With a live tunnel the resource decides, and with a resource the tunnel does.
    if s.live and s.resource is Resource.UNCLEAR:
        return _not_known()
    if not s.live and s.unread and s.resource is not Resource.EXPIRED:
        return _not_known()
    return None


def _never(s: Situation) -> Finding | None:
    if s.agent.had_tunnel or s.agent.tunnels or s.agent.last_proxies:
        return None
    if s.resource is Resource.EXPIRED or (s.resource is Resource.UNEXPIRED and s.frame.covered):
        return Finding(State.NEVER)
    return _not_known()


def _unreachable(s: Situation) -> Finding | None:
    """Stranded, offline, or unknown when what is missing may be on a source that was not read."""
    if s.reachable:
        return None
    auth, proxies = s.blamed_auth, s.blamed_proxies
    if s.resource is Resource.EXPIRED and auth is not None:
        return _stranded_by_auth(s, auth)
    if not s.live and proxies:
        return _stranded_by_proxy(s, proxies)
    if auth is not None:
        return (
            Finding(State.STRANDED, Reason.NO_TUNNEL, outlook=UNCLEAR)
            if s.heartbeats
            else _stranded_by_auth(s, auth)
        )
    if s.live:
        return _stranded_with_tunnel(s)
    if s.resource is not Resource.EXPIRED and not s.frame.covered:
        return _not_known()
    if s.heartbeats:
        return Finding(State.STRANDED, Reason.NO_TUNNEL, outlook=UNCLEAR)
    if s.resource is Resource.UNCLEAR or _rests_on_the_unknown(s):
        return _not_known()
    return Finding(State.OFFLINE, Reason.OWN_HOST, outlook=UNCLEAR)


def _stranded_by_auth(s: Situation, index: int) -> Finding:
    reason, cause, outlook = _auth_trouble(s, index)
    return Finding(State.STRANDED, reason, cause, outlook)


def _stranded_by_proxy(s: Situation, blamed: tuple[int, ...]) -> Finding:
    sick = [s.frame.standings[index] for index in blamed]
    outlook = recovery.from_proxy(
        s.frame, sick[0], s.agent.heartbeat, silent_since=max(standing.since for standing in sick)
    )
    return Finding(State.STRANDED, _proxy_reason(sick[0]), blamed[0], outlook)


def _stranded_with_tunnel(s: Situation) -> Finding:
    """A live tunnel, no resource, and nobody to blame."""
    heartbeat = s.agent.heartbeat
    if heartbeat is None and s.agent.last_auth is None:
        if not s.frame.frozen:
            # Proxies know it and no auth ever listed it: it may be a moment old, or never able to heartbeat.
            return _not_known(Reason.DISAGREE)
        if s.frame.backend_down:
            only_if = recovery.ONLY_IF_CAUSE_RECOVERS
            return Finding(State.STRANDED, Reason.BACKEND_DOWN, BACKEND_CAUSE, only_if)
        return Finding(State.STRANDED, Reason.AUTH_UNHEALTHY, outlook=UNCLEAR)
    if heartbeat is not None and heartbeat.mode is Mode.PICK_FIRST:
        return Finding(State.STRANDED, Reason.POLICY_OFF, outlook=UNCLEAR)
    return Finding(State.STRANDED, Reason.RESOURCE_EXPIRED, outlook=UNCLEAR)


def _rests_on_the_unknown(s: Situation) -> bool:
    used = (*s.used, *(index for index in (s.auth, s.via_proxy) if index is not None))
    return any(s.frame.state(index) is InstanceState.UNKNOWN for index in used)


def _at_risk(s: Situation) -> Finding | None:
    heartbeat = s.agent.heartbeat
    assert heartbeat is not None, "a reachable agent has a resource"
    carrier = s.auth if s.sick(s.auth) else s.via_proxy if s.cut_off(s.via_proxy) else None
    if carrier is not None:
        reason, cause, outlook = _auth_trouble(s, carrier)
        return Finding(State.AT_RISK, reason, cause, outlook, max(heartbeat.expires_at, s.frame.now))
    if all(s.sick(index) for index in s.live):
        return _rests_on_sick_proxies(s, State.AT_RISK)
    return None


def _working(s: Situation) -> Finding | None:
    until = s.agent.working_until
    if until is None or until <= s.frame.now:
        return None
    return Finding(State.WORKING, Reason.RECONNECTING, outlook=Outlook(Recovery.BY_ITSELF, until))


def _degraded(s: Situation) -> Finding | None:
    heartbeat = s.agent.heartbeat
    assert heartbeat is not None, "a reachable agent has a resource"
    if len(_desired(s)) < s.wanted:
        return _too_few(s)
    if sum(not s.sick(index) for index in _desired(s)) < s.wanted:
        return _rests_on_sick_proxies(s, State.DEGRADED)
    if s.via_proxy is not None and s.sick(s.via_proxy):
        reason = _proxy_reason(s.frame.standings[s.via_proxy])
        return Finding(State.DEGRADED, reason, s.via_proxy, UNCLEAR)
    grey = _rests_on_degraded(s)
    if grey is not None:
        return Finding(State.DEGRADED, Reason.INSTANCE_DEGRADED, grey, UNCLEAR)
    if heartbeat.claimed > len(s.agent.tunnels) and s.frame.covered and s.disagrees:
        return Finding(State.DEGRADED, Reason.DISAGREE, outlook=UNCLEAR)
    return None


def _too_few(s: Situation) -> Finding:
    cause = next((index for index in s.used if s.sick(index)), None)
    if cause is None:
        return Finding(State.DEGRADED, Reason.TOO_FEW_TUNNELS, outlook=UNCLEAR)
    proxy = s.frame.standings[cause]
    outlook = recovery.from_proxy(s.frame, proxy, s.agent.heartbeat, silent_since=None, taken=s.sound)
    return Finding(State.DEGRADED, Reason.TOO_FEW_TUNNELS, cause, outlook)


def _rests_on_sick_proxies(s: Situation, state: State) -> Finding:
    cause = next(index for index in s.live if s.sick(index))
    proxy = s.frame.standings[cause]
    outlook = recovery.from_proxy(s.frame, proxy, s.agent.heartbeat, silent_since=None, taken=s.sound)
    return Finding(state, _proxy_reason(proxy), cause, outlook)


def _rests_on_degraded(s: Situation) -> int | None:
    on = (s.auth, s.via_proxy, *s.live)
    degraded = (s.frame.standings[i] for i in on if i is not None and i in s.frame.standings)
    return next((standing.facts.index for standing in degraded if standing.degraded), None)


def _excess(s: Situation) -> Finding | None:
    heartbeat = s.agent.heartbeat
    assert heartbeat is not None, "a reachable agent has a resource"
    # In a mesh nothing is ever surplus: it wants a tunnel to every desired proxy.
    if heartbeat.desired > 0 and len(_desired(s)) > heartbeat.desired:
        return Finding(State.EXCESS, Reason.TOO_MANY_TUNNELS)
    return None


def _desired(s: Situation) -> list[int]:
    return [index for index in s.live if s.frame.standings[index].desired]


def _auth_trouble(s: Situation, index: int) -> tuple[Reason, int, Outlook]:
    """Reason, cause and outlook when the resource is lost, or will be, by the instance at `index`."""
    standing = s.frame.standings[index]
    heartbeat = s.agent.heartbeat
    if index == s.auth:
        outlook = recovery.from_auth(s.frame, standing, heartbeat)
        if s.frame.backend_down:
            return Reason.BACKEND_DOWN, BACKEND_CAUSE, outlook
        return Reason.AUTH_UNHEALTHY, index, outlook
    assert heartbeat is not None, "only a heartbeat names the proxy before the auth"
    return _proxy_reason(standing), index, recovery.from_via_proxy(s.frame, standing, heartbeat)


def _proxy_reason(proxy: Standing) -> Reason:
    if proxy.state in LOST:
        return Reason.PROXY_EXPIRED
    return Reason.PROXY_UNHEALTHY


def _not_known(reason: Reason = Reason.STALE) -> Finding:
    return Finding(State.UNKNOWN, reason, outlook=UNCLEAR)


def _cause_id(cause: int, frame: FleetFrame) -> str:
    if cause == NO_CAUSE:
        return ""
    if cause == BACKEND_CAUSE:
        return f"backend/{frame.cluster}"
    return frame.standings[cause].facts.id
