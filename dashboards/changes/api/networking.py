"""API routes of the networking config: read it with its ETag, plan a change with If-Match. docs/reference/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Query, Router, Status

from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    ChangeResponse,
    PlanOptions,
    api_path_of,
    document_etag,
    document_if_match,
    planning_actor_of,
    read_if_match,
    require_cluster,
    respond_with_change,
    set_etag,
)
from dashboards.shared.api.parameters import RequestBody, Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.capabilities.missing import require_capability
from dashboards.shared.record_reader import take_record_snapshot
from fleet.changes import ChangeRefusedError, engine
from fleet.changes.networking import revisions as networking
from fleet.changes.networking.source_rules import list_fixed_fields
from fleet.models.access import Permission
from fleet.models.networking import NetworkingRevision
from fleet.protocol.networking import config as rules
from fleet.protocol.networking import config_yaml
from fleet.protocol.networking.config import NetworkingConfig, NetworkingConfigError
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.changes import ChangeKind

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_CHANGE_CONFIG = ApiAccess(Permission.CHANGE_CONFIG)
_MAX_REVISIONS = 100
_IF_MATCH_201 = document_if_match("/networking-config", 201)


class FixedFieldItem(Schema):
    """A field that Refloat does not change in a cluster of this source."""

    key: str
    """Key of the field."""
    reason: str
    """Why Refloat does not change the field, as a sentence."""


class NetworkingConfigResponse(Schema):
    """The networking config as it was last read."""

    cluster: str
    """Id of the cluster."""
    revision: str
    """Revision of the config; the ETag has it too."""
    origin: str
    """Origin of the config: `defaults`, `config-file` (owned by the config file of the auths) or `dynamic`."""
    read_at: datetime | None
    """When the config was last read."""
    error: str
    """Why the last attempt to read the config failed; empty after a success."""
    supports_graceful_closing: bool | None
    """Whether the auths keep the field GracefulTunnelClosing when it is written; null before anybody tried, false for
    products that do not have the field."""
    fixed_fields: list[FixedFieldItem]
    """Fields that Refloat does not change in this cluster: a plan that sets another value is refused."""
    document: dict[str, Any]
    """The config as Teleport shows it: kind, metadata and spec."""


class NetworkingPlanRequest(RequestBody):
    """A change of the networking config: exactly one of the fields."""

    fields: dict[str, str] | None = None
    """New values by field, as people write them: `{\"keep_alive_interval\": \"1m\"}`."""
    spec: dict[str, Any] | None = None
    """A whole spec, as in the document."""
    revision: str | None = None
    """An earlier revision to restore."""


class NetworkingRevisionItem(Schema):
    """A revision of the networking config."""

    revision: str
    """Revision of the config."""
    at: datetime
    """When Refloat first read this revision."""
    author: str
    """User who wrote the revision; empty when it was not written with Refloat."""
    reason: str
    """Reason that the user gave."""
    change_id: int | None
    """Number of the change that wrote the revision; null without one."""
    document: dict[str, Any]
    """The config as Teleport shows it: kind, metadata and spec."""


class NetworkingRevisionsResponse(Schema):
    """A list of revisions."""

    cluster: str
    """Id of the cluster."""
    revisions: list[NetworkingRevisionItem]
    """Revisions, the current one first."""


@per_cluster.get(
    "/networking-config",
    auth=_VIEW,
    response={200: NetworkingConfigResponse, **REFUSAL_RESPONSES},
    openapi_extra=document_etag(),
)
def get_networking_config(request: HttpRequest, response: HttpResponse, cluster: str) -> Any:
    """Get the networking config.

    Send its ETag as If-Match when you plan a change.
    """
    require_capability(require_cluster(cluster), Capability.NETWORKING_READ)
    current = networking.require_current_revision(cluster)
    networking_reading = networking.last_reading_of(cluster)
    assert networking_reading is not None, "it was read, so there is a row"
    set_etag(response, current.revision)
    source_rules = networking.source_rules_of(cluster)
    return NetworkingConfigResponse(
        cluster=cluster,
        revision=current.revision,
        origin=networking.resource_of(current).origin,
        read_at=networking_reading.read_at,
        error=networking_reading.error,
        supports_graceful_closing=False
        if source_rules.no_closing_reason
        else networking_reading.knows_closing,
        fixed_fields=[
            FixedFieldItem(key=key, reason=reason) for key, reason in list_fixed_fields(source_rules)
        ],
        document=current.document,
    )


@per_cluster.get(
    "/networking-config/revisions",
    auth=_VIEW,
    response={200: NetworkingRevisionsResponse, **REFUSAL_RESPONSES},
)
def list_networking_revisions(request: HttpRequest, cluster: str) -> Any:
    """List networking config revisions.

    The list has the newest 100 revisions, the current one first.
    """
    require_capability(require_cluster(cluster), Capability.NETWORKING_READ)
    rows = NetworkingRevision.objects.filter(cluster=cluster)[:_MAX_REVISIONS]
    return NetworkingRevisionsResponse(
        cluster=cluster,
        revisions=[
            NetworkingRevisionItem(
                revision=row.revision,
                at=row.at,
                author=row.author,
                reason=row.reason,
                change_id=row.change_id,
                document=row.document,
            )
            for row in rows
        ],
    )


@per_cluster.post(
    "/networking-config/plan",
    auth=_CHANGE_CONFIG,
    response={201: ChangeResponse, **REFUSAL_RESPONSES},
    openapi_extra=_IF_MATCH_201,
)
def plan_networking_change(
    request: HttpRequest,
    response: HttpResponse,
    cluster: str,
    body: NetworkingPlanRequest,
    options: Query[PlanOptions],
) -> Any:
    """Plan a networking config change.

    The change is based on the revision in If-Match. Nothing is written before you confirm the change.
    """
    base_revision, now = read_if_match(request, api_path_of(cluster, "networking-config")), timezone.now()
    require_capability(require_cluster(cluster), Capability.NETWORKING_WRITE)
    current = networking.require_current_revision(cluster)
    actor, after = planning_actor_of(request, options), body.dict(exclude_none=True)
    with engine.record_refused_plan(ChangeKind.NETWORKING_CONFIG, cluster, actor, now, after):
        networking.require_base_revision(current, base_revision)
        config = _read_desired_config(cluster, current, body)
        change = networking.plan_change(cluster, base_revision, config, actor, now, take_record_snapshot())
    return Status(201, respond_with_change(response, change))


def _read_desired_config(
    cluster: str, current: NetworkingRevision, body: NetworkingPlanRequest
) -> NetworkingConfig:
    """Return the requested config. Raises ChangeRefusedError, with problems by field."""
    if sum(body_field is not None for body_field in (body.fields, body.spec, body.revision)) != 1:
        raise ChangeRefusedError(
            "send exactly one of: fields, spec, revision", {"fields": "exactly one of the three is required"}
        )
    try:
        if body.fields is not None:
            return rules.set_fields(networking.resource_of(current).config, body.fields)
        if body.spec is not None:
            return config_yaml.from_document({"spec": body.spec}, strict=True).config
    except NetworkingConfigError as error:
        raise ChangeRefusedError(
            str(error), {problem.key: problem.sentence for problem in error.problems}
        ) from None
    revision = body.revision or ""
    row = NetworkingRevision.objects.filter(cluster=cluster, revision=revision.replace("\0", "")).first()
    if row is None:
        raise ChangeRefusedError(f"revision {revision} was not found", {"revision": "was not found"})
    return networking.resource_of(row).config
