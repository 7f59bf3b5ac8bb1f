"""The networking config by the API: read it with its ETag, plan a change of it with If-Match. docs/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router, Schema, Status

from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    ChangeAnswer,
    path_of,
    respond_with_change,
    read_if_match,
    actor_of,
    document_etag,
    require_cluster,
    set_etag,
    document_if_match,
)
from dashboards.shared.api.parameters import Body
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.record_reader import record
from fleet.changes import ChangeRefusedError, engine
from fleet.changes.networking import revisions as networking
from fleet.models.access import Permission
from fleet.models.networking import NetworkingRevision
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import NetworkingConfig, NetworkingConfigError
from fleet.vocabulary.changes import ChangeKind

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_CHANGE = ApiAccess(Permission.CHANGE_CONFIG)
_REVISIONS = 100
_PLANS = document_if_match("/networking-config", 201)


class ConfigAnswer(Schema):
    """The config as it was last read."""

    cluster: str
    revision: str
    #: `defaults`, `config-file` (owned by the auths' file) or `dynamic`.
    origin: str
    read_at: datetime | None
    #: Why the last attempt to read it failed; empty when it did not.
    error: str
    #: Whether GracefulTunnelClosing survives being written; null while nobody tried.
    knows_closing: bool | None
    document: dict[str, Any]


class NetworkingPlanBody(Body):
    """A change: fields by key as a person writes them, or a whole spec, or an old revision to go back to."""

    fields: dict[str, str] | None = None
    spec: dict[str, Any] | None = None
    revision: str | None = None


class RevisionItem(Schema):
    """A config that was in force."""

    revision: str
    at: datetime
    #: Empty when it was not written through this console.
    who: str
    reason: str
    change: int | None
    document: dict[str, Any]


class RevisionsAnswer(Schema):
    """The newest revisions."""

    cluster: str
    revisions: list[RevisionItem]


@per_cluster.get(
    "/networking-config",
    auth=_VIEW,
    response={200: ConfigAnswer, **REFUSAL_RESPONSES},
    openapi_extra=document_etag(),
)
def networking_config(request: HttpRequest, response: HttpResponse, cluster: str) -> Any:
    """Read the networking config; the ETag is what a plan wants as If-Match."""
    current = networking.require_current_revision(require_cluster(cluster))
    row = networking.read_state_of(cluster)
    assert row is not None, "it was read, so there is a row"
    set_etag(response, current.revision)
    return ConfigAnswer(
        cluster=cluster,
        revision=current.revision,
        origin=networking.resource_of(current).origin,
        read_at=row.read_at,
        error=row.error,
        knows_closing=row.knows_closing,
        document=current.document,
    )


@per_cluster.get("/networking-config/revisions", auth=_VIEW, response={200: RevisionsAnswer, **REFUSAL_RESPONSES})
def revisions(request: HttpRequest, cluster: str) -> Any:
    """List the newest hundred revisions, the present one first."""
    rows = NetworkingRevision.objects.filter(cluster=require_cluster(cluster))[:_REVISIONS]
    return RevisionsAnswer(
        cluster=cluster,
        revisions=[
            RevisionItem(
                revision=row.revision,
                at=row.at,
                who=row.who,
                reason=row.reason,
                change=row.change_id,
                document=row.document,
            )
            for row in rows
        ],
    )


@per_cluster.post(
    "/networking-config/plan",
    auth=_CHANGE,
    response={201: ChangeAnswer, **REFUSAL_RESPONSES},
    openapi_extra=_PLANS,
)
def plan(request: HttpRequest, response: HttpResponse, cluster: str, body: NetworkingPlanBody) -> Any:
    """Plan a change of the revision in If-Match; nothing is written before it is confirmed."""
    base_revision, now = read_if_match(request, path_of(cluster, "networking-config")), timezone.now()
    current = networking.require_current_revision(require_cluster(cluster))
    after = body.dict(exclude_none=True)
    with engine.record_refused_plan(ChangeKind.NETWORKING_CONFIG, cluster, actor_of(request), now, after):
        if current.revision != base_revision:
            raise networking.NetworkingConflictError(current)
        config = _read_desired_config(cluster, current, body)
        change = networking.plan_change(cluster, base_revision, config, actor_of(request), now, record())
    return Status(201, respond_with_change(response, change))


def _read_desired_config(cluster: str, current: NetworkingRevision, body: NetworkingPlanBody) -> NetworkingConfig:
    """The config that is asked for. Raises Refused, with problems by key."""
    if sum(field_value is not None for field_value in (body.fields, body.spec, body.revision)) != 1:
        raise ChangeRefusedError("say one of: fields, spec, revision", {"fields": "one of three must be there"})
    try:
        if body.fields is not None:
            return rules.set_fields(networking.resource_of(current).config, body.fields)
        if body.spec is not None:
            return config_yaml.from_document({"spec": body.spec}, strict=True).config
    except NetworkingConfigError as error:
        raise ChangeRefusedError(str(error), {field_value.key: field_value.sentence for field_value in error.problems}) from None
    revision = body.revision or ""
    row = NetworkingRevision.objects.filter(cluster=cluster, revision=revision.replace("\0", "")).first()
    if row is None:
        raise ChangeRefusedError(f"there was no revision {revision}", {"revision": "was never seen"})
    return networking.resource_of(row).config
