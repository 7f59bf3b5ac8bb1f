"""API routes of maintenance windows. docs/reference/api.md."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router, Status
from ninja.errors import HttpError
from pydantic import Field, WithJsonSchema

from dashboards.alerts.api.writable_rows import require_proof_to_silence_everything, require_writable_row
from dashboards.shared import record_reader
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    caller_of,
    request_actor_of,
    require_cluster,
)
from dashboards.shared.api.parameters import RequestBody, Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.pages import sentence_of
from dashboards.shared.presenters import to_moment_or_none
from fleet.alerts import store
from fleet.alerts.incident_actions import ActionError
from fleet.alerts.matchers import (
    CONFIRMATION_WORD,
    MAX_MATCHERS_LENGTH,
)
from fleet.alerts.recurrence.schedules import describe_schedule, length_between
from fleet.alerts.setup import windows as window_actions
from fleet.alerts.setup.windows import WindowChangedError
from fleet.alerts.silences import MAX_WINDOW_LENGTH
from fleet.models.access import Permission
from fleet.models.alerting import MaintenanceWindow, filter_applicable_to

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)
_SHORTEST_SECONDS = 180.0

#: A time without a zone. The JSON Schema format `time` has one.
_LocalTime = Annotated[
    time, WithJsonSchema({"type": "string", "pattern": r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"})
]
_Name = Annotated[str, Field(max_length=100)]
_Matchers = Annotated[str, Field(max_length=MAX_MATCHERS_LENGTH)]
_Rule = Annotated[str, Field(max_length=200)]
_Duration = Annotated[float, Field(ge=_SHORTEST_SECONDS, le=MAX_WINDOW_LENGTH.total_seconds())]
_ZoneName = Annotated[str, Field(max_length=64)]
_Reason = Annotated[str, Field(max_length=500)]
_Confirmation = Annotated[str, Field(max_length=20)]


class WindowItem(Schema):
    """A maintenance window with its schedule."""

    number: int
    """Number of the maintenance window."""
    cluster: str
    """Cluster that the window belongs to; empty: the whole installation."""
    name: str
    """Name of the window."""
    matchers: str
    """Matchers of what is silenced: `cause=proxy-1`."""
    rule: str
    """RFC 5545 recurrence rule: `FREQ=WEEKLY;BYDAY=SU`."""
    first_day: date
    """First possible day."""
    start_time: _LocalTime
    """Local time at which the window starts."""
    duration_seconds: float
    """Duration in local time, in seconds."""
    time_zone: str
    """IANA name of the time zone."""
    schedule: str
    """When the window recurs, in words: `every Sunday from 02:00 to 04:00 Europe/Berlin`."""
    reason: str
    """Reason for the window."""
    creator: str
    """User who created the window."""
    is_enabled: bool
    """Whether the window silences anything."""
    is_active: bool
    """Whether the window is enabled and an occurrence lasts now."""
    next_at: datetime | None
    """Start of the next occurrence; null if there is none within 5 years."""
    problem: str
    """Why the window cannot be used; empty if it can."""
    version: str
    """Version of the values: a change may name the version that it is based on."""


class WindowsResponse(Schema):
    """A list of maintenance windows."""

    cluster: str
    """Id of the cluster."""
    maintenance_windows: list[WindowItem]
    """Windows of the cluster and of the whole installation."""


class CreateWindowRequest(RequestBody):
    """A new maintenance window."""

    name: _Name
    """Name of the window."""
    matchers: _Matchers
    """Matchers of what to silence: `cause=proxy-1`."""
    rule: _Rule
    """RFC 5545 recurrence rule: `FREQ=WEEKLY;BYDAY=SU`."""
    start_time: _LocalTime
    """Local time at which the window starts: `02:00`."""
    end_time: _LocalTime | None = None
    """Local time at which the window ends; not after the start: on the next day. Either this or `duration_seconds`."""
    duration_seconds: _Duration | None = None
    """Duration in local time, in seconds."""
    first_day: date | None = None
    """First possible day; today if left out."""
    time_zone: _ZoneName = "UTC"
    """IANA name of the time zone."""
    reason: _Reason
    """Reason, of at least 3 characters."""
    confirmation: _Confirmation = ""
    """The word `everything`, which a window that silences everything requires."""


class ChangeWindowRequest(RequestBody):
    """New values of a maintenance window. What is left out does not change."""

    name: _Name | None = None
    """Name of the window."""
    matchers: _Matchers | None = None
    """Matchers of what to silence."""
    rule: _Rule | None = None
    """RFC 5545 recurrence rule."""
    start_time: _LocalTime | None = None
    """Local time at which the window starts. The duration does not change."""
    end_time: _LocalTime | None = None
    """Local time at which the window ends."""
    duration_seconds: _Duration | None = None
    """Duration in local time, in seconds."""
    first_day: date | None = None
    """First possible day."""
    time_zone: _ZoneName | None = None
    """IANA name of the time zone."""
    reason: _Reason | None = None
    """Reason, of at least 3 characters."""
    version: Annotated[str, Field(max_length=64)] = ""
    """Version that the change is based on: 409 if somebody changed the window since. Empty: any."""
    confirmation: _Confirmation = ""
    """The word `everything`, which a window that silences everything requires."""


@per_cluster.get("/maintenance-windows", auth=_VIEW, response={200: WindowsResponse, **REFUSAL_RESPONSES})
def list_maintenance_windows(request: HttpRequest, cluster: str) -> Any:
    """List maintenance windows.

    The list has the windows of the cluster and of the whole installation, also disabled ones.
    """
    rows = filter_applicable_to(MaintenanceWindow.objects.all(), require_cluster(cluster))
    now = record_reader.current_time()
    return WindowsResponse(cluster=cluster, maintenance_windows=[_window_item_of(row, now) for row in rows])


@per_cluster.post("/maintenance-windows", auth=_ACT, response={201: WindowItem, **REFUSAL_RESPONSES})
def create_maintenance_window(request: HttpRequest, cluster: str, body: CreateWindowRequest) -> Any:
    """Create a maintenance window.

    It recurs until it is disabled or deleted.
    """
    now = record_reader.current_time()
    row = MaintenanceWindow(cluster=require_cluster(cluster))
    _apply(row, body)
    if body.end_time is None and body.duration_seconds is None:
        raise HttpError(400, "Send end_time or duration_seconds.")
    _require_proof_if_confirmed(request, row.matchers, body.confirmation)
    try:
        window_actions.create_window(
            row,
            caller_of(request).get_username(),
            now,
            request_actor_of(request),
            typed_word=body.confirmation,
        )
    except ActionError as error:
        raise HttpError(400, sentence_of(error)) from error
    return Status(201, _window_item_of(row, now))


@per_cluster.post(
    "/maintenance-windows/{int:number}", auth=_ACT, response={200: WindowItem, **REFUSAL_RESPONSES}
)
def change_maintenance_window(
    request: HttpRequest, cluster: str, number: int, body: ChangeWindowRequest
) -> Any:
    """Change a maintenance window.

    Fields that are left out keep their values.
    """
    row, now = _require_writable_window(request, cluster, number), record_reader.current_time()
    _apply(row, body)
    _require_proof_if_confirmed(request, row.matchers, body.confirmation)
    try:
        window_actions.change_window(
            row, now, request_actor_of(request), seen_version=body.version, typed_word=body.confirmation
        )
    except WindowChangedError as error:
        raise HttpError(409, f"{sentence_of(error)} Read the window again.") from error
    except ActionError as error:
        raise HttpError(400, sentence_of(error)) from error
    return _window_item_of(row, now)


@per_cluster.post(
    "/maintenance-windows/{int:number}/enable", auth=_ACT, response={200: WindowItem, **REFUSAL_RESPONSES}
)
def enable_maintenance_window(request: HttpRequest, cluster: str, number: int) -> Any:
    """Enable a maintenance window.

    If one of its occurrences lasts now, it silences at once.
    """
    row = _require_writable_window(request, cluster, number)
    if not row.enabled:
        require_proof_to_silence_everything(request, row.matchers)
    return _set_enabled(request, row, is_enabled=True)


@per_cluster.post(
    "/maintenance-windows/{int:number}/disable", auth=_ACT, response={200: WindowItem, **REFUSAL_RESPONSES}
)
def disable_maintenance_window(request: HttpRequest, cluster: str, number: int) -> Any:
    """Disable a maintenance window.

    It silences nothing until it is enabled again.
    """
    return _set_enabled(request, _require_writable_window(request, cluster, number), is_enabled=False)


@per_cluster.post(
    "/maintenance-windows/{int:number}/delete", auth=_ACT, response={200: WindowItem, **REFUSAL_RESPONSES}
)
def delete_maintenance_window(request: HttpRequest, cluster: str, number: int) -> Any:
    """Delete a maintenance window.

    The response has its last values.
    """
    row = _require_writable_window(request, cluster, number)
    last_values = _window_item_of(row, record_reader.current_time())
    window_actions.delete_window(row, request_actor_of(request))
    return last_values


def _set_enabled(request: HttpRequest, row: MaintenanceWindow, *, is_enabled: bool) -> WindowItem:
    window_actions.set_window_enabled(row, request_actor_of(request), is_enabled=is_enabled)
    return _window_item_of(row, record_reader.current_time())


def _apply(row: MaintenanceWindow, body: CreateWindowRequest | ChangeWindowRequest) -> None:
    """Write the values of a request to a window. Raises HttpError 400."""
    values = body.model_dump(exclude_none=True, exclude={"version", "confirmation"})
    if any("\0" in text for text in values.values() if isinstance(text, str)):
        raise HttpError(400, "Texts must not contain a NUL character.")
    if any(at.tzinfo is not None for at in values.values() if isinstance(at, time)):
        raise HttpError(
            400, "start_time and end_time are local times of time_zone: send them without a zone."
        )
    end_time, seconds = values.pop("end_time", None), values.pop("duration_seconds", None)
    if end_time is not None and seconds is not None:
        raise HttpError(400, "Send end_time or duration_seconds, not both.")
    for name, value in values.items():
        setattr(row, name, value)
    if end_time is not None:
        row.length = length_between(row.start_time, end_time)
    elif seconds is not None:
        row.length = timedelta(seconds=seconds)


def _require_writable_window(request: HttpRequest, cluster: str, number: int) -> MaintenanceWindow:
    rows = MaintenanceWindow.objects.all()
    return require_writable_row(rows, request, cluster, number, "maintenance window")


def _require_proof_if_confirmed(request: HttpRequest, matchers: str, typed_word: str) -> None:
    """Require a recent reauthentication where the typed word confirms that everything is silenced."""
    if typed_word.strip().lower() == CONFIRMATION_WORD:
        require_proof_to_silence_everything(request, matchers)


def _window_item_of(row: MaintenanceWindow, now: float) -> WindowItem:
    window = store.window_of(row)
    next_silences = window.upcoming_silences(now)
    return WindowItem(
        number=row.pk,
        cluster=row.cluster,
        name=row.name,
        matchers=row.matchers,
        rule=row.rule,
        first_day=row.first_day,
        start_time=row.start_time,
        duration_seconds=row.length.total_seconds(),
        time_zone=row.time_zone,
        schedule=describe_schedule(row.rule, row.start_time, row.length, row.time_zone),
        reason=row.reason,
        creator=row.creator,
        is_enabled=row.enabled,
        is_active=row.enabled and window.current_silence(now) is not None,
        next_at=to_moment_or_none(next_silences[0].starts_at if next_silences else None),
        problem=window.problem,
        version=window_actions.version_of(row),
    )
