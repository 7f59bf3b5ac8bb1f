"""The tree of notification routes for the page: each route as a sentence, with its children."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fleet.alerts import store
from fleet.alerts.routing.sentences import RouteSentence, describe_routes
from fleet.alerts.routing.tree import Route
from fleet.models.alerting import Channel


@dataclass(frozen=True, slots=True)
class RouteNode:
    """A route on the page."""

    route: Route
    sentence: RouteSentence
    can_change: bool
    #: The incident of the trial ends at this route.
    is_matched: bool
    children: tuple[RouteNode, ...]


def read_route_tree(
    cluster: str, writable_owners: Collection[str], matched_numbers: Collection[int]
) -> tuple[RouteNode, ...]:
    """Return the root routes of a cluster. `matched_numbers`: keys of the routes that a trial ended at."""
    names = {row.pk: row.name if row.enabled else f"{row.name} (disabled)" for row in Channel.objects.all()}
    routes = store.read_routes(cluster)
    return _make_nodes(routes, describe_routes(routes, names), writable_owners, matched_numbers)


def _make_nodes(
    routes: Sequence[Route],
    sentences: Mapping[int, RouteSentence],
    writable_owners: Collection[str],
    matched_numbers: Collection[int],
) -> tuple[RouteNode, ...]:
    return tuple(
        RouteNode(
            route,
            sentences[route.number],
            route.cluster in writable_owners,
            route.number in matched_numbers,
            _make_nodes(route.children, sentences, writable_owners, matched_numbers),
        )
        for route in routes
    )
