"""API routes of runbooks and their custom texts. docs/reference/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Router
from ninja.errors import HttpError
from pydantic import Field

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
from dashboards.shared.permissions import find_write_refusal
from dashboards.shared.presenters import to_moment_or_none
from fleet.alerts.runbooks import custom_texts
from fleet.alerts.runbooks.custom_texts import (
    RunbookTextChangedError,
    RunbookTextError,
    version_of,
)
from fleet.alerts.runbooks.texts import RUNBOOKS
from fleet.models.access import Permission
from fleet.models.alerting import filter_applicable_to
from fleet.models.runbooks import RunbookText
from fleet.vocabulary.runbooks import RunbookCause

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_CHANGE = ApiAccess(Permission.CHANGE_CONFIG)
#: Longest text in a request: a text that is too long for a runbook gets an error that says by how much.
_MAX_BODY_LENGTH = 100_000


class CustomText(Schema):
    """A custom text of a runbook."""

    text: str
    """The text; empty without one."""
    version: str
    """Version of the text: a change may name the version that it is based on."""
    updated_at: datetime | None
    """When the text was written; null without one."""
    updated_by: str
    """User who wrote the text."""


class RunbookItem(Schema):
    """A runbook: the built-in text and the custom texts."""

    cause: str
    """Cause that the runbook is about: `proxy`."""
    label: str
    """Title of the runbook."""
    meaning: str
    """What an incident with this cause means."""
    diagnosis: list[str]
    """What to check, in order."""
    remedies: list[str]
    """What helps, the first remedy first. The page has buttons for those that Refloat can carry out."""
    cluster_text: CustomText
    """Custom text of the cluster, which replaces that of the whole installation."""
    installation_text: CustomText
    """Custom text of the whole installation."""


class RunbooksResponse(Schema):
    """A list of runbooks."""

    cluster: str
    """Id of the cluster."""
    runbooks: list[RunbookItem]
    """All runbooks."""


class SetRunbookTextRequest(RequestBody):
    """A new custom text of a runbook."""

    text: Annotated[str, Field(max_length=_MAX_BODY_LENGTH)]
    """Plain text with at most 10,000 characters; empty: no custom text."""
    scope: Literal["cluster", "installation"] = "cluster"
    """Whose text: that of the `cluster`, or of the whole `installation`."""
    version: Annotated[str, Field(max_length=64)] = ""
    """Version that the change is based on: 409 if somebody changed the text since. Empty: any."""


@per_cluster.get("/runbooks", auth=_VIEW, response={200: RunbooksResponse, **REFUSAL_RESPONSES})
def list_runbooks(request: HttpRequest, cluster: str) -> Any:
    """List runbooks.

    Each has its built-in text and the custom texts.
    """
    rows = _rows_by_owner(require_cluster(cluster))
    return {
        "cluster": cluster,
        "runbooks": [_runbook_item_of(cause, cluster, rows) for cause in RunbookCause],
    }


@per_cluster.get("/runbooks/{cause}", auth=_VIEW, response={200: RunbookItem, **REFUSAL_RESPONSES})
def show_runbook(request: HttpRequest, cluster: str, cause: str) -> Any:
    """Show a runbook.

    The runbook of an incident is in its field `runbook`.
    """
    return _runbook_item_of(_require_cause(cause), cluster, _rows_by_owner(require_cluster(cluster)))


@per_cluster.post("/runbooks/{cause}", auth=_CHANGE, response={200: RunbookItem, **REFUSAL_RESPONSES})
def set_runbook_text(request: HttpRequest, cluster: str, cause: str, body: SetRunbookTextRequest) -> Any:
    """Set the custom text of a runbook.

    Pages show it beside the built-in text.
    """
    runbook_cause = _require_cause(cause)
    owner = require_cluster(cluster) if body.scope == "cluster" else ""
    if sentence := find_write_refusal(caller_of(request), Permission.CHANGE_CONFIG, owner):
        raise HttpError(403, sentence)
    try:
        custom_texts.save_text(
            owner,
            runbook_cause,
            body.text,
            request_actor_of(request),
            record_reader.current_time(),
            seen_version=body.version,
        )
    except RunbookTextChangedError as error:
        raise HttpError(409, f"{sentence_of(error)} Read the runbook again.") from error
    except RunbookTextError as error:
        raise HttpError(400, sentence_of(error)) from error
    return _runbook_item_of(runbook_cause, cluster, _rows_by_owner(cluster))


def _require_cause(cause: str) -> RunbookCause:
    """Return the cause of a runbook. Raises HttpError 404."""
    if cause not in set(RunbookCause):
        raise HttpError(404, f"Runbook {cause} was not found. Use one of: {', '.join(RunbookCause)}.")
    return RunbookCause(cause)


def _rows_by_owner(cluster: str) -> dict[tuple[str, str], RunbookText]:
    rows = filter_applicable_to(RunbookText.objects.all(), cluster)
    return {(row.cause, row.cluster): row for row in rows}


def _runbook_item_of(
    cause: RunbookCause, cluster: str, rows: dict[tuple[str, str], RunbookText]
) -> RunbookItem:
    runbook = RUNBOOKS[cause]
    return RunbookItem(
        cause=cause.value,
        label=cause.label,
        meaning=runbook.meaning,
        diagnosis=list(runbook.diagnosis),
        remedies=[remedy.text for remedy in runbook.remedies],
        cluster_text=_custom_text_of(rows.get((cause.value, cluster))),
        installation_text=_custom_text_of(rows.get((cause.value, ""))),
    )


def _custom_text_of(row: RunbookText | None) -> CustomText:
    if row is None:
        return CustomText(text="", version=version_of(""), updated_at=None, updated_by="")
    return CustomText(
        text=row.text,
        version=version_of(row.text),
        updated_at=to_moment_or_none(row.updated_at),
        updated_by=row.updated_by,
    )
