"""Incidents and silences by the API. docs/api.md."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal

from django.conf import settings
from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from ninja.errors import HttpError
from pydantic import AwareDatetime, Field

from dashboards.alerts.presenters import IncidentView, incident_view, next_notification_of, active_silences_in
from dashboards.shared import record_reader
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import REFUSAL_RESPONSES, actor_of, caller_of, require_cluster, require_reauthentication
from dashboards.shared.api.parameters import Body, Parameters
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.pages import sentence_of
from dashboards.shared.permissions import find_write_refusal
from dashboards.shared.presenters import moment
from fleet.alerts import incident_actions, store
from fleet.alerts.incident_actions import ActionError, AlreadySilencedError
from fleet.alerts.matchers import CONFIRMATION_WORD, MatchError, matches_everything, parse_matchers
from fleet.models.access import Permission
from fleet.models.alerting import Silence, filter_by_cluster
from fleet.models.incidents import Incident
from fleet.vocabulary.incidents import OPEN_STATES

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_ACT = ApiAccess(Permission.ACT_ON_FLEET)


class IncidentFilters(Parameters):
    """Parameters of the list of incidents."""

    state: Literal["open", "pending", "resolved", "all"] = "open"
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class NextMessage(Schema):
    """The next message about an incident."""

    #: Empty: none is to come, as far as can be told now.
    at: datetime | None
    #: Why then, or why none.
    because: str
    #: Names of the channels it goes to.
    to: list[str]


class IncidentItem(Schema):
    """One incident."""

    number: int
    #: Its name for ever: cluster, cause and how often that was a cause.
    id: str
    state: str
    severity: str
    summary: str
    cause_kind: str
    cause: str
    affected: int
    peak: int
    agents: list[str]
    opened_at: datetime | None
    resolved_at: datetime | None
    duration_seconds: float
    heals_at: datetime | None
    flapping: bool
    acknowledged_by: str
    silenced_by: str
    inhibited_by: str
    next_message: NextMessage


class IncidentsAnswer(Schema):
    """Incidents, the newest first."""

    cluster: str
    incidents: list[IncidentItem]


class SilenceItem(Schema):
    """One silence."""

    number: int
    #: The cluster that it belongs to; empty: the whole installation.
    cluster: str
    matchers: str
    reason: str
    creator: str
    starts_at: datetime | None
    ends_at: datetime | None


class SilencesAnswer(Schema):
    """Silences that have not ended."""

    cluster: str
    silences: list[SilenceItem]


class SilenceBody(Body):
    """A silence to make. Its creator is who asks."""

    matchers: Annotated[str, Field(max_length=500)]
    reason: Annotated[str, Field(max_length=500)]
    hours: Annotated[float, Field(gt=0, le=720)] = 1.0
    #: With a zone; now if not given.
    starts_at: AwareDatetime | None = None
    #: The word `everything`, when nothing is left out.
    typed: Annotated[str, Field(max_length=20)] = ""


class ExtendBody(Body):
    """How much longer a silence lasts, from its end on."""

    hours: Annotated[float, Field(gt=0, le=720)] = 1.0


@per_cluster.get("/incidents", auth=_VIEW, response={200: IncidentsAnswer, **REFUSAL_RESPONSES})
def incidents(request: HttpRequest, cluster: str, filters: Query[IncidentFilters]) -> Any:
    """List incidents."""
    now = record_reader.current_time()
    rows = Incident.objects.filter(cluster=require_cluster(cluster))
    if filters.state == "open":
        rows = rows.filter(state__in=OPEN_STATES)
    elif filters.state != "all":
        rows = rows.filter(state=filters.state)
    return {"cluster": cluster, "incidents": _incident_views(rows[: filters.limit], cluster, now)}


@per_cluster.post("/incidents/{int:number}/acknowledge", auth=_ACT, response={200: IncidentItem, **REFUSAL_RESPONSES})
def acknowledge(request: HttpRequest, cluster: str, number: int) -> Any:
    """Say that you look after an incident."""
    row = Incident.objects.filter(cluster=require_cluster(cluster), pk=_row_id_of(number)).first()
    if row is None:
        raise HttpError(404, f"There is no incident {number} in the cluster {cluster}.")
    now = record_reader.current_time()
    incident_actions.acknowledge(row, caller_of(request).get_username(), now, settings.REFLOAT_PUBLIC_URL)
    row.refresh_from_db()
    return _incident_views([row], cluster, now)[0]


@per_cluster.get("/silences", auth=_VIEW, response={200: SilencesAnswer, **REFUSAL_RESPONSES})
def silences(request: HttpRequest, cluster: str) -> Any:
    """List silences that have not ended."""
    rows = filter_by_cluster(Silence.objects.filter(ends_at__gt=record_reader.current_time()), require_cluster(cluster))
    return SilencesAnswer(cluster=cluster, silences=[_silence_item(row) for row in rows])


@per_cluster.post("/silences", auth=_ACT, response={201: SilenceItem, **REFUSAL_RESPONSES})
def make_silence(request: HttpRequest, cluster: str, body: SilenceBody) -> Any:
    """Keep something quiet for a while."""
    now, username = record_reader.current_time(), caller_of(request).get_username()
    if "\0" in body.matchers or "\0" in body.reason:
        raise HttpError(400, "There must be no NUL in it.")
    if body.typed.strip().lower() == CONFIRMATION_WORD:
        _prove_for_everything(request, body.matchers)
    try:
        starts_at = incident_actions.starts_at_of(body.starts_at, now)
    except ActionError as error:
        # The date is one; that it is too late or too soon is a matter of when this is sent.
        raise HttpError(409, f"{error}.".capitalize()) from error
    try:
        silence_row = incident_actions.create_silence(
            body.matchers,
            body.reason,
            username,
            starts_at,
            starts_at + body.hours * 3600,
            actor_of(request),
            cluster=require_cluster(cluster),
            typed_word=body.typed,
        )
    except AlreadySilencedError as error:
        raise HttpError(409, sentence_of(error)) from error
    except (ActionError, MatchError) as error:
        raise HttpError(400, f"{error}.".capitalize()) from error
    return Status(201, _silence_item(silence_row))


@per_cluster.post("/silences/{int:number}/end", auth=_ACT, response={200: SilenceItem, **REFUSAL_RESPONSES})
def end_silence(request: HttpRequest, cluster: str, number: int) -> Any:
    """End a silence now."""
    row = _silence_row(request, cluster, number)
    incident_actions.end_silence(row, record_reader.current_time(), actor_of(request))
    row.refresh_from_db()
    return _silence_item(row)


@per_cluster.post("/silences/{int:number}/extend", auth=_ACT, response={200: SilenceItem, **REFUSAL_RESPONSES})
def extend_silence(request: HttpRequest, cluster: str, number: int, body: ExtendBody) -> Any:
    """Let a silence last longer."""
    row, now = _silence_row(request, cluster, number), record_reader.current_time()
    _prove_for_everything(request, row.matchers)
    if row.ends_at <= now:
        raise HttpError(409, f"The silence {number} has ended: make another.")
    try:
        incident_actions.extend_silence(row, body.hours * 3600, now, actor_of(request))
    except ActionError as error:
        raise HttpError(409, f"{error}.".capitalize()) from error
    row.refresh_from_db()
    return _silence_item(row)


def _silence_row(request: HttpRequest, cluster: str, number: int) -> Silence:
    """Return a silence that the caller may change, or answer 404 or 403."""
    row = filter_by_cluster(Silence.objects.filter(pk=_row_id_of(number)), require_cluster(cluster)).first()
    if row is None:
        raise HttpError(404, f"There is no silence {number} in the cluster {cluster}.")
    if sentence := find_write_refusal(caller_of(request), Permission.ACT_ON_FLEET, row.cluster):
        raise HttpError(403, sentence)
    return row


def _prove_for_everything(request: HttpRequest, matchers: str) -> None:
    """Require recent proof from a session before everything is kept quiet. Raises ReauthenticationRequired."""
    try:
        parsed_matchers = parse_matchers(matchers)
    except MatchError as error:
        raise HttpError(400, f"{error}.".capitalize()) from error
    if matches_everything(parsed_matchers):
        require_reauthentication(request)


def _row_id_of(number: int) -> int:
    """What a database takes as a key; 0 for what it does not."""
    return number if 0 < number < 1 << 62 else 0


def _incident_views(rows: Iterable[Incident], cluster: str, now: float) -> list[IncidentView]:
    rules, tree = store.read_rules(cluster), store.read_routes(cluster)
    active_silences = active_silences_in(cluster, now)
    return [
        incident_view(row, now, active_silences=active_silences, next_notification=next_notification_of(row, rules, now, tree, active_silences))
        for row in rows
    ]


def _silence_item(row: Silence) -> SilenceItem:
    return SilenceItem(
        number=row.pk,
        cluster=row.cluster,
        matchers=row.matchers,
        reason=row.reason,
        creator=row.creator,
        starts_at=moment(row.starts_at),
        ends_at=moment(row.ends_at),
    )
