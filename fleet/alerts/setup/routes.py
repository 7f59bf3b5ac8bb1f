"""Notification routes: validation of their values, and saving them. docs/reference/alerts.md, "Notification routes"."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from datetime import time

from django.db import transaction

from fleet.alerts import setup_actions
from fleet.alerts.matchers import MatcherError, parse_matchers
from fleet.alerts.routing.sentences import describe_route
from fleet.alerts.routing.tree import Route as PureRoute
from fleet.alerts.setup.problems import find_column_problems, format_sentence, require_no_problems
from fleet.alerts.setup.versions import require_version, write_row
from fleet.alerts.silences import WindowError, zone_of
from fleet.audit import RequestActor
from fleet.models.alerting import Channel, Route
from fleet.vocabulary.incidents import Severity

MAX_ROUTE_NAME_LENGTH = 100
#: Shortest time before an escalation, seconds.
MIN_ESCALATION_SECONDS = 60.0
#: Longest time before an escalation, seconds: 30 days.
MAX_ESCALATION_SECONDS = 30 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteValues:
    """The values of a route, for validation. Channels are keys or names, which differ from each other."""

    cluster: str
    matchers: str
    channels: Collection[Hashable]
    escalate_after: float | None
    escalate_to: Collection[Hashable]
    quiet_from: time | None
    quiet_until: time | None
    quiet_zone: str
    #: Clusters that own the channels, those of the escalation, and the parent (None: there is none).
    channel_clusters: Collection[str]
    escalation_clusters: Collection[str]
    parent_cluster: str | None


def find_route_problems(values: RouteValues) -> dict[str, str]:
    """Return what is wrong with the values of a route, by field. Pure."""
    problems = {}
    try:
        parse_matchers(values.matchers, is_for_route=True)
    except MatcherError as error:
        problems["matchers"] = format_sentence(str(error))
    if (values.quiet_from is None) != (values.quiet_until is None):
        problems["quiet_until"] = "Enter both the start and the end of the quiet hours."
    try:
        zone_of(values.quiet_zone or "UTC")
    except WindowError as error:
        problems["quiet_zone"] = format_sentence(str(error))
    problems |= _find_escalation_problem(values)
    owners = {"", values.cluster}
    if values.parent_cluster is not None and values.parent_cluster not in owners:
        problems["parent"] = (
            "A route of the whole installation cannot have a parent that belongs to a cluster."
        )
    for field, clusters in (
        ("channels", values.channel_clusters),
        ("escalate_to", values.escalation_clusters),
    ):
        if set(clusters) - owners:
            problems[field] = (
                "A route of the whole installation can only use channels of the whole installation."
            )
    return problems


def _find_escalation_problem(values: RouteValues) -> dict[str, str]:
    if values.escalate_after and not values.escalate_to:
        return {"escalate_to": "Choose the channel to notify then."}
    if values.escalate_to and not values.escalate_after:
        return {"escalate_after": "Enter the time after which to notify it, for example 15 min."}
    if (
        values.escalate_after
        and not MIN_ESCALATION_SECONDS <= values.escalate_after <= MAX_ESCALATION_SECONDS
    ):
        return {"escalate_after": "The time before an escalation must be between 1 min and 30 d."}
    if values.escalate_to and set(values.escalate_to) <= set(values.channels):
        return {
            "escalate_to": "This channel is already notified at once. Choose one that is not, or add one first."
        }
    return {}


def name_route(matchers: str, min_severity: int) -> str:
    """Return the incidents of a route as its name: `Critical incidents caused by a proxy`. Raises MatcherError."""
    parsed_matchers = parse_matchers(matchers, is_for_route=True)
    route = PureRoute("", matchers=parsed_matchers, min_severity=Severity(min_severity))
    return describe_route(route, {}).subject[:MAX_ROUTE_NAME_LENGTH]


def is_below(parent: Route | None, row: Route) -> bool:
    """Return whether a route is another one, or below it at any depth."""
    while parent is not None:
        if parent.pk == row.pk:
            return True
        parent = parent.parent
    return False


def route_values_of(row: Route, channels: Sequence[Channel], escalate_to: Sequence[Channel]) -> RouteValues:
    """Return the values of a route row with its channels."""
    return RouteValues(
        cluster=row.cluster,
        matchers=row.matchers,
        channels=[channel.pk for channel in channels],
        escalate_after=row.escalate_after,
        escalate_to=[channel.pk for channel in escalate_to],
        quiet_from=row.quiet_from,
        quiet_until=row.quiet_until,
        quiet_zone=row.quiet_zone,
        channel_clusters=[channel.cluster for channel in channels],
        escalation_clusters=[channel.cluster for channel in escalate_to],
        parent_cluster=None if row.parent is None else row.parent.cluster,
    )


def save_route(
    row: Route,
    channels: Sequence[Channel],
    escalate_to: Sequence[Channel],
    actor: RequestActor,
    *,
    seen_version: str = "",
) -> None:
    """Create or change a route. Raises SetupError, and SetupChangedError if the row is not `seen_version` now."""

    def save() -> None:
        with transaction.atomic():
            if row.pk:
                require_version(row, seen_version, "route")
            row.name, row.matchers = row.name.strip(), row.matchers.strip()
            problems = find_route_problems(route_values_of(row, channels, escalate_to))
            if row.pk and is_below(row.parent, row):
                problems["parent"] = "A route cannot be its own parent, directly or indirectly."
            if not row.name and "matchers" not in problems:
                row.name = name_route(row.matchers, row.min_severity)
            require_no_problems(find_column_problems(row, "route") | problems)
            write_row(row)
            row.channels.set(channels)
            row.escalate_to.set(escalate_to)

    setup_actions.save_setting(row, save, actor)


def descendant_rows_of(row: Route) -> list[Route]:
    """Return all routes below a route, at any depth, each before those below it."""
    children = list(Route.objects.filter(parent=row))
    return [route for child in children for route in (child, *descendant_rows_of(child))]
