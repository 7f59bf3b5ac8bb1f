"""API routes of notification routes, and their trial. docs/reference/api.md."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import time
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Status
from ninja.errors import HttpError
from pydantic import Field, WithJsonSchema

from dashboards.alerts import route_tree
from dashboards.alerts.api.setup_fields import (
    CHANGE,
    VIEW,
    Name,
    RowNumber,
    Scope,
    SeverityName,
    Version,
    parse_severity,
    require_new_owner,
    require_writable,
)
from dashboards.alerts.api.writable_rows import require_row
from dashboards.alerts.forms.route_trial import RouteTrialForm
from dashboards.alerts.route_tree import RouteNode
from dashboards.shared import record_reader
from dashboards.shared.api.change_responses import REFUSAL_RESPONSES, request_actor_of, require_cluster
from dashboards.shared.api.parameters import QueryParameters, RequestBody, Schema
from dashboards.shared.api.per_cluster import PerCluster
from fleet.alerts import setup_actions
from fleet.alerts.matchers import MAX_MATCHERS_LENGTH
from fleet.alerts.setup.problems import SetupError
from fleet.alerts.setup.routes import (
    MAX_ESCALATION_SECONDS,
    MIN_ESCALATION_SECONDS,
    descendant_rows_of,
    save_route,
)
from fleet.alerts.setup.versions import version_of
from fleet.models.alerting import Channel, Route, filter_applicable_to
from fleet.vocabulary.incidents import CauseKind, Severity

router = Router()
per_cluster = PerCluster(router)
_MAX_POSITION = 1_000_000
#: Most channels of a route.
_MAX_CHANNEL_COUNT = 100

#: A time of day without a zone. The JSON Schema format `time` has one.
_TimeOfDay = Annotated[
    time, WithJsonSchema({"type": "string", "pattern": r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"})
]
_Matchers = Annotated[str, Field(max_length=MAX_MATCHERS_LENGTH)]
_Position = Annotated[int, Field(ge=0, le=_MAX_POSITION)]
_Channels = Annotated[list[RowNumber], Field(max_length=_MAX_CHANNEL_COUNT)]
_EscalationDelay = Annotated[float, Field(ge=MIN_ESCALATION_SECONDS, le=MAX_ESCALATION_SECONDS)]
_ZoneName = Annotated[str, Field(max_length=64)]


class RouteChannel(Schema):
    """A channel that a route notifies."""

    number: int
    """Number of the channel."""
    name: str
    """Name of the channel."""


class RouteItem(Schema):
    """A notification route."""

    number: int
    """Number of the route."""
    cluster: str
    """Cluster that the route belongs to; empty: the whole installation."""
    name: str
    """Name of the route."""
    sentence: str
    """The route in words: `Critical incidents notify pager immediately.`"""
    depth: int
    """Number of routes above it."""
    parent: int | None
    """Number of the parent route; null for a root route."""
    position: int
    """Position: routes with the same parent are tried in ascending order."""
    min_severity: str
    """Minimum severity of the incidents: `info`, `warning` or `critical`."""
    matchers: str
    """Matchers of the incidents: `kind=proxy`; empty: all incidents."""
    channels: list[RouteChannel]
    """Channels of the route; none: those of the parent."""
    includes_parent_channels: bool
    """Whether the channels of the parent are notified, too."""
    escalate_after_seconds: float | None
    """Time without acknowledgement after which a critical incident escalates; null: as the parent."""
    escalate_to: list[RouteChannel]
    """Channels that are notified then."""
    quiet_from: time | None
    """Local start of the quiet hours, in which only critical notifications are sent; null: there are none."""
    quiet_until: time | None
    """Local end of the quiet hours."""
    quiet_zone: str
    """IANA name of the time zone of the quiet hours."""
    continues: bool
    """Whether the next routes are tried, too."""
    version: str
    """Version of the values: a change may name the version that it is based on."""


class RoutesResponse(Schema):
    """A list of notification routes."""

    cluster: str
    """Id of the cluster."""
    routes: list[RouteItem]
    """Routes of the cluster and of the whole installation in the order in which they are tried, each before its
    child routes.
    """


class RouteFields(RequestBody):
    """New values of a notification route. What is left out does not change."""

    name: Name | None = None
    """Name of the route; empty: Refloat names the route after its incidents."""
    parent: RowNumber | None = None
    """Number of the parent route. Send `"is_root": true` for none."""
    is_root: bool = False
    """Whether the route has no parent."""
    position: _Position | None = None
    """Position: routes with the same parent are tried in ascending order."""
    min_severity: SeverityName | None = None
    """Minimum severity of the incidents: `info`, `warning` or `critical`."""
    matchers: _Matchers | None = None
    """Matchers of the incidents: `kind=proxy`; empty: all incidents."""
    channels: _Channels | None = None
    """Numbers of the channels; an empty list: those of the parent."""
    includes_parent_channels: bool | None = None
    """Whether the channels of the parent are notified, too."""
    escalate_after_seconds: _EscalationDelay | None = None
    """Time without acknowledgement after which a critical incident escalates."""
    escalate_to: _Channels | None = None
    """Numbers of the channels that are notified then; an empty list: the escalation of the parent."""
    quiet_from: _TimeOfDay | None = None
    """Local start of the quiet hours: `22:00`."""
    quiet_until: _TimeOfDay | None = None
    """Local end of the quiet hours: `06:00`."""
    quiet_zone: _ZoneName | None = None
    """IANA name of the time zone of the quiet hours."""
    has_quiet_hours: bool | None = None
    """Send false to remove the quiet hours."""
    continues: bool | None = None
    """Whether the next routes are tried, too."""


class CreateRouteRequest(RouteFields):
    """A new notification route. Without a severity, it takes critical incidents."""

    scope: Scope = Scope.INSTALLATION
    """`installation`, or `cluster` for a route of the cluster of the path."""


class ChangeRouteRequest(RouteFields):
    """New values of a notification route. What is left out does not change."""

    version: Version = ""
    """Version that the change is based on: 409 if somebody changed the route since. Empty: any."""


class DeletedRoute(Schema):
    """A route that was deleted."""

    number: int
    """Number that the route had."""
    name: str
    """Name of the route."""
    deleted_child_routes: list[str]
    """Names of the routes below it, which were deleted, too."""


class TrialParameters(QueryParameters):
    """An incident for a trial of the routes."""

    cause: Annotated[str, Field(max_length=200)] = CauseKind.AGENTS.value
    """Cause of the incident: kind and name of an instance (`proxy:proxy-1`), or `agents` (agents without a failing
    instance), `backend`, `fleet`, `cluster` or `console`.
    """
    severity: Annotated[str, Field(json_schema_extra={"enum": ["critical", "warning"]})] = "critical"
    """Severity of the incident: `critical` or `warning`."""
    rule: Name = ""
    """Name of the alert rule; empty: any."""
    agent_set: Annotated[str, Field(max_length=64)] = ""
    """Agent set with an affected agent; empty: none."""


class TrialNotification(Schema):
    """A channel that the incident would notify."""

    channel: str
    """Name of the channel."""
    after_seconds: float
    """Time from the first notification."""
    time_text: str
    """That time in words: `immediately`, `again after 15 min, unless somebody acknowledges the incident`."""


class TrialResponse(Schema):
    """Whom an incident would notify if its first notification were sent now."""

    subject: str
    """The incident in words."""
    notifications: list[TrialNotification]
    """Channels in the order of time; empty: nobody."""
    paths: list[str]
    """Routes that the incident passes, one path for each route that it ends at."""
    note: str
    """Why nobody is notified whatever the routes say, as a sentence; or empty."""


@per_cluster.get("/routes", auth=VIEW, response={200: RoutesResponse, **REFUSAL_RESPONSES})
def list_routes(request: HttpRequest, cluster: str) -> Any:
    """List notification routes.

    Each has its sentence. The first route that matches takes an incident, and so does the first of its child routes.
    """
    return RoutesResponse(cluster=cluster, routes=_read_route_items(require_cluster(cluster)))


@per_cluster.post("/routes", auth=CHANGE, response={201: RouteItem, **REFUSAL_RESPONSES})
def create_route(request: HttpRequest, cluster: str, body: CreateRouteRequest) -> Any:
    """Create a notification route.

    Without `parent`, the route is placed below the only root route. With `is_root`, or if there is no root route yet,
    it becomes a root route.
    """
    row = Route(cluster=require_new_owner(request, cluster, body.scope), min_severity=int(Severity.CRITICAL))
    roots = list(filter_applicable_to(Route.objects.filter(parent=None), cluster)[:2])
    if len(roots) == 1:
        row.parent = roots[0]
    _save(request, row, body, cluster)
    return Status(201, _route_item_of(row, cluster))


@per_cluster.get("/routes/try", auth=VIEW, response={200: TrialResponse, **REFUSAL_RESPONSES})
def try_routes(request: HttpRequest, cluster: str, parameters: Query[TrialParameters]) -> Any:
    """Try the notification routes.

    The response has whom an incident would notify, and when. Nothing is sent.
    """
    numbers = {severity.slug: str(int(severity)) for severity in Severity}
    form = RouteTrialForm(
        {
            "try-severity": numbers.get(parameters.severity, parameters.severity),
            "try-cause": parameters.cause,
            "try-rule": parameters.rule,
            "try-agent_set": parameters.agent_set,
        },
        cluster=require_cluster(cluster),
        now=record_reader.current_time(),
    )
    problems = {name: " ".join(map(str, errors)) for name, errors in form.errors.items()}
    if parameters.agent_set and "agent_set" not in form.fields:
        problems["agent_set"] = f"Cluster {cluster} has no agent sets."
    prediction = form.predict()
    if problems or prediction is None:
        raise SetupError(problems)
    return TrialResponse(
        subject=prediction.subject,
        notifications=[
            TrialNotification(
                channel=notification.channel,
                after_seconds=notification.after_seconds,
                time_text=notification.time_text,
            )
            for notification in prediction.notifications
        ],
        paths=list(prediction.paths),
        note=prediction.note,
    )


@per_cluster.get("/routes/{int:number}", auth=VIEW, response={200: RouteItem, **REFUSAL_RESPONSES})
def get_route(request: HttpRequest, cluster: str, number: int) -> Any:
    """Get a notification route.

    The response has its sentence and its place in the tree.
    """
    return _route_item_of(require_row(Route.objects.all(), cluster, number, "route"), cluster)


@per_cluster.post("/routes/{int:number}", auth=CHANGE, response={200: RouteItem, **REFUSAL_RESPONSES})
def change_route(request: HttpRequest, cluster: str, number: int, body: ChangeRouteRequest) -> Any:
    """Change or move a notification route.

    Fields that are left out keep their values. `parent` and `position` move the route with its child routes.
    """
    row = require_row(Route.objects.all(), cluster, number, "route")
    require_writable(request, row)
    _save(request, row, body, cluster, body.version)
    return _route_item_of(row, cluster)


@per_cluster.post(
    "/routes/{int:number}/delete", auth=CHANGE, response={200: DeletedRoute, **REFUSAL_RESPONSES}
)
def delete_route(request: HttpRequest, cluster: str, number: int) -> Any:
    """Delete a notification route.

    Its child routes are deleted, too.
    """
    row = require_row(Route.objects.all(), cluster, number, "route")
    require_writable(request, row)
    name, child_names = row.name, [route.name for route in descendant_rows_of(row)]
    setup_actions.delete_setting(row, request_actor_of(request))
    return DeletedRoute(number=number, name=name, deleted_child_routes=child_names)


def _save(request: HttpRequest, row: Route, body: RouteFields, cluster: str, seen_version: str = "") -> None:
    """Write the values of a request to a route. Raises HttpError 400, SetupError, SetupChangedError."""
    if body.parent is not None and body.is_root:
        raise HttpError(400, "Send parent or is_root, not both.")
    if any(at is not None and at.tzinfo is not None for at in (body.quiet_from, body.quiet_until)):
        raise HttpError(
            400, "quiet_from and quiet_until are local times of quiet_zone: send them without a zone."
        )
    if body.is_root:
        row.parent = None
    elif body.parent is not None:
        parent = filter_applicable_to(Route.objects.filter(pk=body.parent), cluster).first()
        if parent is None:
            raise SetupError({"parent": f"Route {body.parent} was not found in cluster {cluster}."})
        row.parent = parent
    columns = body.model_dump(
        exclude_none=True,
        include={
            "name", "position", "matchers", "includes_parent_channels", "quiet_from", "quiet_until", "quiet_zone",
        },
    )  # fmt: skip
    for name, value in columns.items():
        setattr(row, name, value)
    if body.has_quiet_hours is False:
        row.quiet_from = row.quiet_until = None
    if body.min_severity is not None:
        row.min_severity = int(parse_severity(body.min_severity))
    if body.continues is not None:
        row.continue_matching = body.continues
    channels = _channels_of(row, "channels", body.channels, cluster)
    escalate_to = _channels_of(row, "escalate_to", body.escalate_to, cluster)
    if body.escalate_after_seconds is not None:
        row.escalate_after = body.escalate_after_seconds
    elif body.escalate_to == []:
        row.escalate_after = None
    save_route(row, channels, escalate_to, request_actor_of(request), seen_version=seen_version)


def _channels_of(row: Route, field: str, numbers: list[int] | None, cluster: str) -> list[Channel]:
    """Return the channels that a request names; without numbers those that the route has. Raises SetupError."""
    if numbers is None:
        return list(getattr(row, field).all()) if row.pk else []
    rows = {
        channel.pk: channel
        for channel in filter_applicable_to(Channel.objects.filter(pk__in=numbers), cluster)
    }
    unknown_numbers = [str(number) for number in numbers if number not in rows]
    if unknown_numbers:
        raise SetupError(
            {field: f"Channel {', '.join(unknown_numbers[:5])} was not found in cluster {cluster}."}
        )
    return [rows[number] for number in dict.fromkeys(numbers)]


def _route_item_of(row: Route, cluster: str) -> RouteItem:
    items_by_number = {route_item.number: route_item for route_item in _read_route_items(cluster)}
    if row.pk not in items_by_number:
        raise HttpError(404, f"Route {row.pk} was not found in cluster {cluster}.")
    return items_by_number[row.pk]


def _read_route_items(cluster: str) -> list[RouteItem]:
    rows = {
        row.pk: row
        for row in filter_applicable_to(Route.objects.prefetch_related("channels", "escalate_to"), cluster)
    }
    return list(_iterate_items(route_tree.read_route_tree(cluster, (), ()), rows, cluster, 0))


def _iterate_items(
    nodes: Iterable[RouteNode], rows: dict[int, Route], cluster: str, depth: int
) -> Iterable[RouteItem]:
    for node in nodes:
        row = rows.get(node.route.number)
        if row is not None:  # deleted meanwhile
            yield _make_item(row, node, cluster, depth)
            yield from _iterate_items(node.children, rows, cluster, depth + 1)


def _make_item(row: Route, node: RouteNode, cluster: str, depth: int) -> RouteItem:
    channels, escalate_to = (
        [
            RouteChannel(number=channel.pk, name=channel.name)
            for channel in rows.all()
            if channel.cluster in ("", cluster)
        ]
        for rows in (row.channels, row.escalate_to)
    )
    return RouteItem(
        number=row.pk,
        cluster=row.cluster,
        name=row.name,
        sentence=node.sentence.text,
        depth=depth,
        parent=row.parent_id,
        position=row.position,
        min_severity=Severity(row.min_severity).slug,
        matchers=row.matchers,
        channels=channels,
        includes_parent_channels=row.includes_parent_channels,
        escalate_after_seconds=row.escalate_after,
        escalate_to=escalate_to,
        quiet_from=row.quiet_from,
        quiet_until=row.quiet_until,
        quiet_zone=row.quiet_zone,
        continues=row.continue_matching,
        version=version_of(row),
    )
