"""Notification routes as sentences: *Critical incidents notify pager immediately*. Pure.

docs/reference/alerts.md, "Notification routes".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleet.alerts.matchers import Matcher
from fleet.alerts.routing.reach import RouteReach, iterate_reach
from fleet.alerts.routing.tree import Route
from fleet.protocol.durations import format_readable
from fleet.vocabulary.incidents import CauseKind, Severity
from fleet.vocabulary.name_lists import join_names

_SEVERITY_SUBJECTS: Mapping[Severity, str] = {
    Severity.INFO: "All incidents",
    Severity.WARNING: "Critical incidents and warnings",
    Severity.CRITICAL: "Critical incidents",
}
#: Incidents of one severity.
_SEVERITY_NOUNS: Mapping[Severity, str] = {
    Severity.CRITICAL: "critical incidents",
    Severity.WARNING: "warnings",
    Severity.INFO: "incidents of severity info",
}
#: Most routes above that a sentence names.
_MAX_NAMED_ROUTES = 3
#: What incidents of a kind of cause are about, for `kind=`.
CAUSE_KIND_CLAUSES: Mapping[CauseKind, str] = {
    CauseKind.CONSOLE: "about missing monitoring data",
    CauseKind.CLUSTER: "about an unreachable cluster",
    CauseKind.BACKEND: "caused by the auth backend",
    CauseKind.REGION: "caused by a region",
    CauseKind.AUTH: "caused by an auth",
    CauseKind.GROUP: "caused by a proxy group",
    CauseKind.PROXY: "caused by a proxy",
    CauseKind.AGENTS: "without a failing instance",
    CauseKind.FLEET: "about the whole fleet",
    CauseKind.IDENTITY: "about the identity of Refloat",
}


@dataclass(frozen=True, slots=True)
class RouteSentence:
    """One route in words."""

    #: `Critical incidents in cluster default caused by a proxy`.
    subject: str
    #: `notify pager immediately, instead of ops; they notify chief after 15 min without acknowledgement`.
    predicate: str
    #: Whole sentences about quiet hours and the next routes.
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The route as one text."""
        return " ".join((f"{self.subject} {self.predicate}.", *self.notes))


def describe_routes(routes: Sequence[Route], channel_names: Mapping[int, str]) -> dict[int, RouteSentence]:
    """Return all routes of a tree in words, by number: each about the incidents that the routes above leave to it."""
    reach_of_route = {route.number: reach for route, reach in iterate_reach(routes)}

    def describe(routes: Sequence[Route], parent_channel_ids: tuple[int, ...]) -> dict[int, RouteSentence]:
        sentences = {}
        for route in routes:
            reach = reach_of_route[route.number]
            sentences[route.number] = describe_route(route, channel_names, parent_channel_ids, reach)
            sentences |= describe(route.children, route.effective_channel_ids(parent_channel_ids))
        return sentences

    return describe(routes, ())


def describe_route(
    route: Route,
    channel_names: Mapping[int, str],
    parent_channel_ids: Sequence[int] = (),
    reach: RouteReach | None = None,
) -> RouteSentence:
    """Return a route in words, alone or with its `reach`.

    `parent_channel_ids`: the effective channels of its parent.
    """
    notes = []
    if reach is not None:
        if not reach.severities:
            return RouteSentence("No incidents", "reach this route", (_explain_no_reach(reach),))
        if reach.taking_routes:
            nouns = _describe_severities(reach.taken_severities)
            notes.append(f"{nouns} end at {_name_routes(reach.taking_routes)} above.")
    severities = frozenset(Severity) if reach is None else reach.severities
    if Severity.INFO in severities and len(severities) > 1 and route.min_severity is Severity.INFO:
        notes.append("Incidents of severity info are sent in digests only.")
    if (hours := route.quiet_hours) is not None:
        notes.append(
            f"From {hours.start:%H:%M} to {hours.end:%H:%M} {hours.zone}, notifications about incidents that are not "
            f"critical wait until {hours.end:%H:%M}."
        )
    if route.should_continue:
        notes.append("The next routes are tried, too.")
    if reach is not None and reach.severities == {Severity.INFO}:
        predicate = "notify nobody: they are sent in digests only"
    else:
        predicate = _describe_receivers(route, channel_names, parent_channel_ids)
    return RouteSentence(_describe_subject(route, reach), predicate, tuple(notes))


def describe_matcher(matcher: Matcher) -> str:
    """Return what incidents a matcher selects: `caused by proxy-1 or proxy-2`."""
    values = " or ".join(matcher.patterns)
    negation = "not " if matcher.is_negated else ""
    if matcher.field == "cause":
        return f"{negation}caused by {values}"
    if matcher.field == "kind":
        return f"{negation}{' or '.join(map(_describe_cause_kind, matcher.patterns))}"
    if matcher.field == "agent_set":
        return f"that affect {'no ' if matcher.is_negated else ''}agents of the set {values}"
    return f"{negation}of {matcher.field} {values}"


def _describe_cause_kind(pattern: str) -> str:
    is_kind = pattern in set(CauseKind)
    return CAUSE_KIND_CLAUSES[CauseKind(pattern)] if is_kind else f"caused by something of kind {pattern}"


def _explain_no_reach(reach: RouteReach) -> str:
    if reach.taking_routes:
        return f"They end at {_name_routes(reach.taking_routes)} above."
    return "No severity fulfils its conditions and those of the routes that it is nested in."


def _describe_severities(severities: Collection[Severity]) -> str:
    """Return `Critical incidents and warnings`."""
    if len(severities) == len(Severity):
        return _SEVERITY_SUBJECTS[Severity.INFO]
    nouns = join_names([noun for severity, noun in _SEVERITY_NOUNS.items() if severity in severities])
    return f"{nouns[:1].upper()}{nouns[1:]}"


def _name_routes(routes: Sequence[Route]) -> str:
    """Return `the route “pager”`, or `3 routes` if they are too many to name."""
    if len(routes) > _MAX_NAMED_ROUTES:
        return f"{len(routes)} routes"
    names = join_names([f"“{route.name}”" for route in routes])
    return f"the route{'s' if len(routes) > 1 else ''} {names}"


def _describe_subject(route: Route, reach: RouteReach | None) -> str:
    subject = (
        _SEVERITY_SUBJECTS[route.min_severity] if reach is None else _describe_severities(reach.severities)
    )
    # The severities that reach the route say what its matchers of severities do.
    matchers = [matcher for matcher in route.matchers if reach is None or matcher.field != "severity"]
    exception = ""
    if reach is not None and reach.overlapping_routes:
        verb = "take" if len(reach.overlapping_routes) > 1 else "takes"
        exception = f", except those that {_name_routes(reach.overlapping_routes)} above {verb},"
    cluster_clause = [f"in cluster {route.cluster}"] if route.cluster else []
    matcher_clauses = " and ".join(map(describe_matcher, matchers))
    return " ".join((subject, *cluster_clause, *filter(None, (matcher_clauses,)))) + exception


def _describe_receivers(
    route: Route, channel_names: Mapping[int, str], parent_channel_ids: Sequence[int]
) -> str:
    own_names = _join_channel_names(route.channel_ids, channel_names)
    parent_names = _join_channel_names(
        [channel for channel in parent_channel_ids if channel not in route.channel_ids], channel_names
    )
    if own_names and route.includes_parent_channels and parent_names:
        clause = f"notify {own_names} and {parent_names} immediately"
    elif own_names and parent_names:
        clause = f"notify {own_names} immediately, instead of {parent_names}"
    elif own_names or parent_names:
        clause = f"notify {own_names or parent_names} immediately"
    else:
        clause = "notify nobody: no channel is chosen"
    if route.escalate_after and route.escalate_to:
        notified_ids = route.effective_channel_ids(tuple(parent_channel_ids))
        names = [
            f"{channel_names[channel]}{' again' if channel in notified_ids else ''}"
            for channel in route.escalate_to
            if channel in channel_names
        ]
        delay_text = format_readable(round(route.escalate_after))
        subject = "they" if route.min_severity is Severity.CRITICAL else "critical ones"
        clause += f"; {subject} notify {join_names(names)} after {delay_text} without acknowledgement"
    return clause


def _join_channel_names(channel_ids: Iterable[int], channel_names: Mapping[int, str]) -> str:
    return join_names([channel_names[channel] for channel in channel_ids if channel in channel_names])
