"""The tree of notification routes for the page: each route as a sentence, with its children."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fleet.alerts import store
from fleet.alerts.routing.sentences import RouteSentence, describe_route
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
    return _make_nodes(store.read_routes(cluster), names, (), writable_owners, matched_numbers)


def _make_nodes(
    routes: Sequence[Route],
    channel_names: Mapping[int, str],
    parent_channel_ids: tuple[int, ...],
    writable_owners: Collection[str],
    matched_numbers: Collection[int],
) -> tuple[RouteNode, ...]:
    return tuple(
        RouteNode(
            route,
            describe_route(route, channel_names, parent_channel_ids),
            route.cluster in writable_owners,
            route.number in matched_numbers,
            _make_nodes(
                route.children,
                channel_names,
                route.effective_channel_ids(parent_channel_ids),
                writable_owners,
                matched_numbers,
            ),
        )
        for route in routes
    )
