"""Which incidents reach a route, after the routes that are tried before it. Pure.

docs/reference/alerts.md, "Notification routes".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fleet.alerts.matchers import Matcher
from fleet.alerts.routing.tree import Route
from fleet.vocabulary.incidents import CauseKind, Severity

#: Characters of patterns that match more than one name, and of keys of causes (`proxy/<id>`).
_PATTERN_CHARACTERS = frozenset("*?[/")


@dataclass(frozen=True, slots=True)
class RouteReach:
    """The incidents that reach a route, as far as the routes alone say."""

    #: Severities of incidents that are left for the route; empty: no incident reaches it.
    severities: frozenset[Severity]
    #: Severities of which routes before it take all its incidents, and those routes.
    taken_severities: frozenset[Severity] = frozenset()
    taking_routes: tuple[Route, ...] = ()
    #: Routes before it that take some of the incidents that are left.
    overlapping_routes: tuple[Route, ...] = ()


def iterate_reach(
    routes: Sequence[Route], ancestors: tuple[Route, ...] = (), earlier_routes: tuple[Route, ...] = ()
) -> Iterator[tuple[Route, RouteReach]]:
    """Yield each route of a tree with its reach, a route before those below it.

    `earlier_routes`: routes that are tried before the ancestors, and keep what they take.
    """
    for route in routes:
        path = (*ancestors, route)
        yield route, _find_reach(path, earlier_routes)
        yield from iterate_reach(route.children, path, earlier_routes)
        if not route.should_continue:
            earlier_routes = (*earlier_routes, route)


def _find_reach(path: Sequence[Route], earlier_routes: Iterable[Route]) -> RouteReach:
    """Return what is left for the last route of a path. An incident reaches it if all routes of the path accept it."""
    matchers = tuple(matcher for route in path for matcher in route.matchers)
    severities = frozenset.intersection(*(_severities_of(route) for route in path))
    cluster = next((route.cluster for route in path if route.cluster), "")
    accepted_severities = severities
    taking_routes, candidates = [], []
    for route in earlier_routes:
        if cluster and route.cluster not in ("", cluster):
            continue
        if route.cluster in ("", cluster) and _implies(matchers, route.matchers):
            if overlap := severities & _severities_of(route):
                severities -= overlap
                taking_routes.append(route)
        elif not _are_disjoint(matchers, route.matchers):
            candidates.append(route)
    overlapping_routes = [route for route in candidates if severities & _severities_of(route)]
    return RouteReach(
        severities, accepted_severities - severities, tuple(taking_routes), tuple(overlapping_routes)
    )


def _severities_of(route: Route) -> frozenset[Severity]:
    return frozenset(
        severity
        for severity in Severity
        if severity >= route.min_severity
        and all(matcher.matches([severity.slug]) for matcher in route.matchers if matcher.field == "severity")
    )


def _kinds_of(matchers: Iterable[Matcher]) -> frozenset[CauseKind]:
    kind_matchers = [matcher for matcher in matchers if matcher.field == "kind"]
    return frozenset(kind for kind in CauseKind if all(matcher.matches([kind]) for matcher in kind_matchers))


def _implies(matchers: Sequence[Matcher], other_matchers: Iterable[Matcher]) -> bool:
    """Return whether each incident that fulfils `matchers` fulfils the others; severities are compared elsewhere."""
    return all(
        matcher in matchers or (matcher.field == "kind" and _kinds_of(matchers) <= _kinds_of([matcher]))
        for matcher in other_matchers
        if matcher.field != "severity"
    )


def _are_disjoint(matchers: Sequence[Matcher], other_matchers: Sequence[Matcher]) -> bool:
    """Return whether no incident fulfils both: they name different kinds, or different causes by name."""
    if not _kinds_of(matchers) & _kinds_of(other_matchers):
        return True
    return any(
        not set(matcher.patterns) & set(second_matcher.patterns)
        for matcher in matchers
        for second_matcher in other_matchers
        if _is_list_of_causes(matcher) and _is_list_of_causes(second_matcher)
    )


def _is_list_of_causes(matcher: Matcher) -> bool:
    return (
        matcher.field == "cause"
        and not matcher.is_negated
        and not _PATTERN_CHARACTERS.intersection(matcher.value)
    )
