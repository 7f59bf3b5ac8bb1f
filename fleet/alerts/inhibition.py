"""Which trouble explains which other, so that one cause sends one message. Pure. docs/alerts.md, "Inhibition"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleet.vocabulary.incidents import CauseKind, Finding, Incident, IncidentState

#: An instance that is sick still, so long after the stronger cause became quiet, has troubles of its own.
GRACE = 60.0

_FLEETWIDE = frozenset({CauseKind.AGENTS, CauseKind.FLEET})
#: Those that stand for several instances.
JOINT = frozenset({CauseKind.REGION, CauseKind.GROUP})
_INSTANCES = frozenset({CauseKind.AUTH, CauseKind.PROXY}) | JOINT
#: The strongest first.
STRENGTH = tuple(CauseKind)


def inhibitor(
    incident: Incident,
    finding: Finding | None,
    others: Iterable[Incident],
    members: Mapping[str, frozenset[str]],
    now: float,
) -> str:
    """The key of the strongest trouble that explains `incident`; empty when it stands for itself.

    `members`: by the key of each open incident of a group or region, the keys it stands for.
    """
    explaining = [other for other in others if _explains(other, incident, finding, members, now)]
    explaining.sort(key=lambda other: (STRENGTH.index(other.cause.kind), -_quiet_at(other)))
    return explaining[0].key if explaining else ""


def representatives(incidents: Iterable[Incident]) -> list[Incident]:
    """Those that need to be asked: every auth, group and region, and of other kinds the one that was quiet the least.

    A thousand proxies explain no more than one of them does; an auth explains the proxies that heartbeat through it.
    """
    best: dict[object, Incident] = {}
    for one in incidents:
        kind = one.cause.kind
        if kind in _FLEETWIDE or one.state is IncidentState.RESOLVED:
            continue
        place = one.key if kind in JOINT or kind is CauseKind.AUTH else kind
        kept = best.get(place)
        if kept is None or _quiet_at(one) > _quiet_at(kept):
            best[place] = one
    return list(best.values())


def _quiet_at(incident: Incident) -> float:
    return float("inf") if incident.quiet_since is None else incident.quiet_since


def _explains(
    other: Incident,
    incident: Incident,
    finding: Finding | None,
    members: Mapping[str, frozenset[str]],
    now: float,
) -> bool:
    strong, weak = other.cause.kind, incident.cause.kind
    if other.key == incident.key or STRENGTH.index(strong) >= STRENGTH.index(weak):
        return False
    if strong is CauseKind.CONSOLE:
        # What we saw last may be long gone: until we see again we say nothing of it.
        return other.state is not IncidentState.RECOVERING
    quiet_for = 0.0 if other.quiet_since is None else now - other.quiet_since
    if weak in _INSTANCES and other.state is IncidentState.RECOVERING and quiet_for > GRACE:
        return False
    if finding is not None and finding.root_cause == other.key:
        return True
    if strong in (CauseKind.CLUSTER, CauseKind.BACKEND):
        return not _was_before(incident, other)
    if weak in _FLEETWIDE:
        # A labelled agent is watched for its own sake: only what explains everything explains it.
        return not _is_labelled(incident)
    if strong is CauseKind.AUTH:
        # One that is dead is dead.
        return finding is not None and _suffers_still(other, incident, finding)
    if strong in JOINT and other.inhibited_by:
        # What explains the group explains who is in it, or else that stands for itself.
        return False
    return incident.key in members.get(other.key, ())


def _suffers_still(auth: Incident, proxy: Incident, finding: Finding) -> bool:
    """Whether a proxy that answers could not heartbeat because of an auth that is not to blame now."""
    # The auth is well again, and the proxy has yet to heartbeat.
    if finding.depends_on == auth.key and proxy.inhibited_by == auth.key:
        return True
    return finding.expired_only


def _was_before(incident: Incident, other: Incident) -> bool:
    """Whether an incident began before the other can have begun, or was told before it."""
    if incident.cause.kind in _FLEETWIDE:
        # Agents come and go at these causes all the time.
        began = incident.fired_at if incident.notices else None
        return began is not None and began < (other.began_at or other.opened_at)
    if incident.began_at is None or other.began_at is None:
        return False
    return incident.began_at < other.began_at


def _is_labelled(incident: Incident) -> bool:
    return any(mark.labelled for mark in incident.marks.values())
