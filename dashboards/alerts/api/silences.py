"""API routes of silences. docs/reference/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router, Status
from ninja.errors import HttpError
from pydantic import AwareDatetime, Field

from dashboards.alerts.api.writable_rows import require_proof_to_silence_everything, require_writable_row
from dashboards.alerts.silences.matches import find_text_matches, read_scope
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
from fleet.alerts import incident_actions
from fleet.alerts.incident_actions import ActionError, AlreadySilencedError
from fleet.alerts.matchers import (
    CONFIRMATION_WORD,
    MAX_MATCHERS_LENGTH,
    MatcherError,
)
from fleet.models.access import Permission
from fleet.models.alerting import Silence, filter_applicable_to

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)


class SilenceItem(Schema):
    """A silence with its matchers, reason and period."""

    number: int
    """Number of the silence."""
    cluster: str
    """Cluster that the silence belongs to; empty: the whole installation."""
    matchers: str
    """Matchers of the silenced incidents: `cause=proxy-1`."""
    reason: str
    """Reason that the creator gave."""
    creator: str
    """User who created the silence."""
    starts_at: datetime | None
    """When the silence starts."""
    ends_at: datetime | None
    """When the silence ends."""


class CreatedSilence(SilenceItem):
    """A new silence, with what its matchers match now. It silences what matches later, too."""

    matching_incident_count: int | None
    """Number of unresolved incidents that match now; null while the fleet state cannot be read."""
    matching_agent_count: int | None
    """Number of agents that match now, or that these incidents affect; null while the fleet state cannot be read."""


class SilencesResponse(Schema):
    """A list of silences."""

    cluster: str
    """Id of the cluster."""
    silences: list[SilenceItem]
    """Silences that have not ended."""


class CreateSilenceRequest(RequestBody):
    """A new silence."""

    matchers: Annotated[str, Field(max_length=MAX_MATCHERS_LENGTH)]
    """Matchers of the incidents to silence: `cause=proxy-1`."""
    reason: Annotated[str, Field(max_length=500)]
    """Reason of at least 3 characters, for the audit log and the pages."""
    hours: Annotated[float, Field(gt=0, le=720)] = 1.0
    """Duration in hours."""
    starts_at: AwareDatetime | None = None
    """When the silence starts, with a time zone; now if left out."""
    confirmation: Annotated[str, Field(max_length=20)] = ""
    """The word `everything`, which a silence that matches every incident requires."""


class ExtendSilenceRequest(RequestBody):
    """An extension of a silence."""

    hours: Annotated[float, Field(gt=0, le=720)] = 1.0
    """Hours to add to the end of the silence."""


@per_cluster.get("/silences", auth=_VIEW, response={200: SilencesResponse, **REFUSAL_RESPONSES})
def list_silences(request: HttpRequest, cluster: str) -> Any:
    """List silences.

    The list has the silences that have not ended.
    """
    rows = filter_applicable_to(
        Silence.objects.filter(ends_at__gt=record_reader.current_time()), require_cluster(cluster)
    )
    return SilencesResponse(cluster=cluster, silences=[_silence_item_of(row) for row in rows])


@per_cluster.post("/silences", auth=_ACT, response={201: CreatedSilence, **REFUSAL_RESPONSES})
def create_silence(request: HttpRequest, cluster: str, body: CreateSilenceRequest) -> Any:
    """Create a silence.

    Incidents that match it send no notifications until it ends.
    """
    now, username = record_reader.current_time(), caller_of(request).get_username()
    if "\0" in body.matchers or "\0" in body.reason:
        raise HttpError(400, "Matchers and reason must not contain a NUL character.")
    if body.confirmation.strip().lower() == CONFIRMATION_WORD:
        require_proof_to_silence_everything(request, body.matchers)
    try:
        starts_at = incident_actions.starts_at_of(body.starts_at, now)
    except ActionError as error:
        # 409, not 400: the date is valid, but not at the time of this request.
        raise HttpError(409, sentence_of(error)) from error
    try:
        silence_row = incident_actions.create_silence(
            body.matchers,
            body.reason,
            username,
            starts_at,
            starts_at + body.hours * 3600,
            request_actor_of(request),
            cluster=require_cluster(cluster),
            typed_word=body.confirmation,
            now=now,
        )
    except AlreadySilencedError as error:
        raise HttpError(409, sentence_of(error)) from error
    except (ActionError, MatcherError) as error:
        raise HttpError(400, sentence_of(error)) from error
    matches = find_text_matches(silence_row.matchers, read_scope(cluster, now))
    return Status(
        201,
        CreatedSilence(
            **_silence_item_of(silence_row).model_dump(),
            matching_incident_count=None if matches.error else len(matches.rows),
            matching_agent_count=None if matches.error else matches.agent_count,
        ),
    )


@per_cluster.post("/silences/{int:number}/end", auth=_ACT, response={200: SilenceItem, **REFUSAL_RESPONSES})
def end_silence(request: HttpRequest, cluster: str, number: int) -> Any:
    """End a silence.

    The silence ends now.
    """
    row = require_writable_row(Silence.objects.all(), request, cluster, number, "silence")
    incident_actions.end_silence(row, record_reader.current_time(), request_actor_of(request))
    row.refresh_from_db()
    return _silence_item_of(row)


@per_cluster.post(
    "/silences/{int:number}/extend", auth=_ACT, response={200: SilenceItem, **REFUSAL_RESPONSES}
)
def extend_silence(request: HttpRequest, cluster: str, number: int, body: ExtendSilenceRequest) -> Any:
    """Extend a silence.

    The hours are added to the end of the silence.
    """
    row, now = (
        require_writable_row(Silence.objects.all(), request, cluster, number, "silence"),
        record_reader.current_time(),
    )
    require_proof_to_silence_everything(request, row.matchers)
    if row.ends_at <= now:
        raise HttpError(409, f"Silence {number} has ended. Create a new silence.")
    try:
        incident_actions.extend_silence(row, body.hours * 3600, now, request_actor_of(request))
    except ActionError as error:
        raise HttpError(409, sentence_of(error)) from error
    row.refresh_from_db()
    return _silence_item_of(row)


def _silence_item_of(row: Silence) -> SilenceItem:
    return SilenceItem(
        number=row.pk,
        cluster=row.cluster,
        matchers=row.matchers,
        reason=row.reason,
        creator=row.creator,
        starts_at=to_moment_or_none(row.starts_at),
        ends_at=to_moment_or_none(row.ends_at),
    )
