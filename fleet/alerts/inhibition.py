"""Which trouble explains which other, so that one cause sends one message. Pure. docs/alerts.md, "Inhibition"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleet.vocabulary.incidents import CauseKind, Finding, Incident, IncidentState

#: An instance that is sick still, so long after the stronger cause became quiet, has troubles of its own.
GRACE_SECONDS = 60.0

_FLEETWIDE_KINDS = frozenset({CauseKind.AGENTS, CauseKind.FLEET})
#: Those that stand for several instances.
JOINT_KINDS = frozenset({CauseKind.REGION, CauseKind.GROUP})
_INSTANCE_KINDS = frozenset({CauseKind.AUTH, CauseKind.PROXY}) | JOINT_KINDS
#: The strongest first.
STRENGTH_ORDER = tuple(CauseKind)


def inhibitor_of(
    incident: Incident,
    finding: Finding | None,
    candidates: Iterable[Incident],
    members: Mapping[str, frozenset[str]],
    now: float,
) -> str:
    """The key of the strongest trouble that explains `incident`; empty when it stands for itself.

    `members`: by the key of each open incident of a group or region, the keys it stands for.
    """
    inhibitors = [candidate for candidate in candidates if _explains(candidate, incident, finding, members, now)]
    inhibitors.sort(key=lambda candidate: (STRENGTH_ORDER.index(candidate.cause.kind), -_quiet_since(candidate)))
    return inhibitors[0].key if inhibitors else ""


def select_representatives(incidents: Iterable[Incident]) -> list[Incident]:
    """Those that need to be asked: every auth, group and region, and of other kinds the one that was quiet the least.

    A thousand proxies explain no more than one of them does; an auth explains the proxies that heartbeat through it.
    """
    best: dict[object, Incident] = {}
    for incident in incidents:
        kind = incident.cause.kind
        if kind in _FLEETWIDE_KINDS or incident.state is IncidentState.RESOLVED:
            continue
        group = incident.key if kind in JOINT_KINDS or kind is CauseKind.AUTH else kind
        representative = best.get(group)
        if representative is None or _quiet_since(incident) > _quiet_since(representative):
            best[group] = incident
    return list(best.values())


def _quiet_since(incident: Incident) -> float:
    return float("inf") if incident.quiet_since is None else incident.quiet_since


def _explains(
    candidate: Incident,
    incident: Incident,
    finding: Finding | None,
    members: Mapping[str, frozenset[str]],
    now: float,
) -> bool:
    strong, weak = candidate.cause.kind, incident.cause.kind
    if candidate.key == incident.key or STRENGTH_ORDER.index(strong) >= STRENGTH_ORDER.index(weak):
        return False
    if strong is CauseKind.CONSOLE:
        # What we saw last may be long gone: until we see again we say nothing of it.
        return candidate.state is not IncidentState.RECOVERING
    quiet_for = 0.0 if candidate.quiet_since is None else now - candidate.quiet_since
    if weak in _INSTANCE_KINDS and candidate.state is IncidentState.RECOVERING and quiet_for > GRACE_SECONDS:
        return False
    if finding is not None and finding.root_cause == candidate.key:
        return True
    if strong in (CauseKind.CLUSTER, CauseKind.BACKEND):
        return not _began_before(incident, candidate)
    if weak in _FLEETWIDE_KINDS:
        # A labelled agent is watched for its own sake: only what explains everything explains it.
        return not _is_labelled(incident)
    if strong is CauseKind.AUTH:
        # One that is dead is dead.
        return finding is not None and _still_suffers(candidate, incident, finding)
    if strong in JOINT_KINDS and candidate.inhibited_by:
        # What explains the group explains who is in it, or else that stands for itself.
        return False
    return incident.key in members.get(candidate.key, ())


def _still_suffers(auth: Incident, proxy: Incident, finding: Finding) -> bool:
    """Whether a proxy that answers could not heartbeat because of an auth that is not to blame now."""
    # The auth is well again, and the proxy has yet to heartbeat.
    if finding.depends_on == auth.key and proxy.inhibited_by == auth.key:
        return True
    return finding.expired_only


def _began_before(incident: Incident, candidate: Incident) -> bool:
    """Whether an incident began before the other can have begun, or was told before it."""
    if incident.cause.kind in _FLEETWIDE_KINDS:
        # Agents come and go at these causes all the time.
        fired_at = incident.fired_at if incident.notices else None
        return fired_at is not None and fired_at < (candidate.began_at or candidate.opened_at)
    if incident.began_at is None or candidate.began_at is None:
        return False
    return incident.began_at < candidate.began_at


def _is_labelled(incident: Incident) -> bool:
    return any(mark.is_label_scoped for mark in incident.marks.values())
