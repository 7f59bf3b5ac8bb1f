"""Inhibition between incidents, so that one cause sends one notification. Pure.

docs/reference/alerts.md, "Inhibition".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleet.vocabulary.incidents import CauseKind, Finding, Incident, IncidentState

#: Seconds after the recovery of a stronger cause from which an instance that still fails has its own incident.
INHIBITION_GRACE_SECONDS = 60.0

_FLEETWIDE_KINDS = frozenset({CauseKind.AGENTS, CauseKind.FLEET})
#: Kinds of causes that stand for several instances.
JOINT_KINDS = frozenset({CauseKind.REGION, CauseKind.GROUP})
_INSTANCE_OR_JOINT_KINDS = frozenset({CauseKind.AUTH, CauseKind.PROXY}) | JOINT_KINDS
#: Kinds of causes, strongest first.
CAUSE_KINDS_BY_STRENGTH = tuple(CauseKind)


def inhibitor_of(
    incident: Incident,
    finding: Finding | None,
    candidates: Iterable[Incident],
    members_by_key: Mapping[str, frozenset[str]],
    now: float,
) -> str:
    """Return the key of the strongest incident that inhibits `incident`; empty if none does.

    `members_by_key`: keys of the instances by key of each open incident of a proxy group or region.
    """
    inhibitors = [
        candidate for candidate in candidates if _inhibits(candidate, incident, finding, members_by_key, now)
    ]
    inhibitors.sort(
        key=lambda candidate: (
            CAUSE_KINDS_BY_STRENGTH.index(candidate.cause.kind),
            -_recovering_since(candidate),
        )
    )
    return inhibitors[0].key if inhibitors else ""


def select_representatives(incidents: Iterable[Incident]) -> list[Incident]:
    """Return the incidents that can inhibit: every auth, group and region, and one incident per other kind.

    A thousand proxies inhibit no more than one of them; an auth inhibits the proxies that heartbeat through it.
    """
    representative_by_group: dict[object, Incident] = {}
    for incident in incidents:
        kind = incident.cause.kind
        if kind in _FLEETWIDE_KINDS or incident.state is IncidentState.RESOLVED:
            continue
        group = incident.key if kind in JOINT_KINDS or kind is CauseKind.AUTH else kind
        representative = representative_by_group.get(group)
        if representative is None or _recovering_since(incident) > _recovering_since(representative):
            representative_by_group[group] = incident
    return list(representative_by_group.values())


def _recovering_since(incident: Incident) -> float:
    return float("inf") if incident.recovering_since is None else incident.recovering_since


def _inhibits(
    candidate: Incident,
    incident: Incident,
    finding: Finding | None,
    members_by_key: Mapping[str, frozenset[str]],
    now: float,
) -> bool:
    candidate_kind, incident_kind = candidate.cause.kind, incident.cause.kind
    strength_of = CAUSE_KINDS_BY_STRENGTH.index
    if candidate.key == incident.key or strength_of(candidate_kind) >= strength_of(incident_kind):
        return False
    if incident_kind is CauseKind.IDENTITY:
        # A cluster that does not respond does not explain it: it may be the reason why nothing responds.
        return False
    if candidate_kind is CauseKind.CONSOLE:
        # While Refloat is blind, the last known state may be outdated, so it sends nothing about it.
        return candidate.state is not IncidentState.RECOVERING
    recovering_seconds = 0.0 if candidate.recovering_since is None else now - candidate.recovering_since
    if (
        incident_kind in _INSTANCE_OR_JOINT_KINDS
        and candidate.state is IncidentState.RECOVERING
        and recovering_seconds > INHIBITION_GRACE_SECONDS
    ):
        return False
    if finding is not None and finding.root_cause_key == candidate.key:
        return True
    if candidate_kind in (CauseKind.CLUSTER, CauseKind.BACKEND):
        return not _began_before(incident, candidate)
    if incident_kind in _FLEETWIDE_KINDS:
        # Incidents of rules about an agent set are only inhibited by causes that affect the whole cluster.
        return not _is_about_agent_set(incident)
    if candidate_kind is CauseKind.AUTH:
        # A proxy that does not respond has failed itself; no auth explains that.
        return finding is not None and _does_auth_block_heartbeat(candidate, incident, finding)
    if candidate_kind in JOINT_KINDS and candidate.inhibited_by:
        # The cause of an inhibited group either inhibits its members directly, or they have their own incidents.
        return False
    return incident.key in members_by_key.get(candidate.key, ())


def _does_auth_block_heartbeat(auth: Incident, proxy: Incident, finding: Finding) -> bool:
    """Return whether a responding proxy could not heartbeat because of an auth."""
    # The auth has recovered, and the proxy has not sent its next heartbeat yet.
    if finding.heartbeat_auth_key == auth.key and proxy.inhibited_by == auth.key:
        return True
    return finding.is_expired_only


def _began_before(incident: Incident, candidate: Incident) -> bool:
    """Return whether an incident began, or was notified, before the other one can have begun."""
    if incident.cause.kind in _FLEETWIDE_KINDS:
        # The agents of these causes change all the time, so the time of firing counts.
        fired_at = incident.fired_at if incident.is_notified else None
        return fired_at is not None and fired_at < (candidate.began_at or candidate.opened_at)
    if incident.began_at is None or candidate.began_at is None:
        return False
    return incident.began_at < candidate.began_at


def _is_about_agent_set(incident: Incident) -> bool:
    return any(mark.is_agent_set_scoped for mark in incident.marks.values())
