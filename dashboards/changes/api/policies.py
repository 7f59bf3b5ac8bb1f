"""Env-driven policies by the API: what runs beside what is wanted, and plans of other values. docs/api.md."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router, Schema, Status
from pydantic import Field

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
from fleet.changes.policies import desired, matrix, planning
from fleet.models.access import Permission

router = Router()
per_cluster = PerCluster(router)
_VIEW, _CHANGE = ApiAccess(Permission.VIEW_FLEET), ApiAccess(Permission.CHANGE_CONFIG)
_PLANS = document_if_match("/policies", 201)


class PolicyItem(Schema):
    """One policy of one instance."""

    name: str
    #: free, same, restart, drift, left or unknown.
    state: str
    desired: str
    #: "role", "instance", or empty.
    desired_of: str
    value: str | None
    #: flag, file, env or default.
    source: str | None
    next_value: str | None
    #: What it would run with if it had accepted nothing; null when it does not say.
    beneath: str | None


class InstancePolicies(Schema):
    """One instance."""

    id: str
    name: str
    role: str
    #: It takes policies over the network and restarts itself; else `note` says why not.
    takes: bool
    note: str
    policies: list[PolicyItem]


class PoliciesAnswer(Schema):
    """All that is wanted, by role or instance id, and what runs."""

    cluster: str
    revision: str
    desired: dict[str, dict[str, str]]
    instances: list[InstancePolicies]
    #: What is still wanted of instances that were deregistered, by id.
    gone: dict[str, dict[str, str]]


class PolicyPlanBody(Body):
    """Other values: of each target named all its policies; other targets stay as they are."""

    desired: dict[str, dict[str, str]]
    #: Restart instances with it.
    roll_out: bool = True
    #: at_once, drain, settle, patience; whole numbers.
    terms: Annotated[dict[str, int | str], Field(default_factory=dict)]


@per_cluster.get(
    "/policies",
    auth=_VIEW,
    response={200: PoliciesAnswer, **REFUSAL_RESPONSES},
    openapi_extra=document_etag(),
)
def policies(request: HttpRequest, response: HttpResponse, cluster: str) -> Any:
    """Read what instances run with and what is wanted; the ETag is what a plan wants as If-Match."""
    desired_values = desired.desired_values_of(require_cluster(cluster))
    rows = planning.instance_rows_of(cluster, desired_values, record())
    revision = desired.revision_of(desired_values)
    set_etag(response, revision)
    return PoliciesAnswer(
        cluster=cluster,
        revision=revision,
        desired=desired_values,
        instances=[
            InstancePolicies(
                id=row.id,
                name=row.name,
                role=row.role,
                takes=row.is_managed,
                note=row.note,
                policies=[
                    PolicyItem(
                        name=cell.policy.name,
                        state=cell.state.value,
                        desired=cell.desired_value,
                        desired_of=cell.desired_source,
                        value=cell.current_value,
                        source=cell.source.value if cell.source else None,
                        next_value=cell.next_value,
                        beneath=cell.report.fallback_value.text if cell.report and cell.report.fallback_value else None,
                    )
                    for cell in row.cells
                ],
            )
            for row in rows
        ],
        gone=matrix.deregistered_values_of(rows, desired_values),
    )


@per_cluster.post(
    "/policies/plan",
    auth=_CHANGE,
    response={201: ChangeAnswer, **REFUSAL_RESPONSES},
    openapi_extra=_PLANS,
)
def plan(request: HttpRequest, response: HttpResponse, cluster: str, body: PolicyPlanBody) -> Any:
    """Plan other policies, on the revision in If-Match; nothing happens before it is confirmed."""
    change = planning.plan_change(
        require_cluster(cluster),
        {**desired.desired_values_of(cluster), **body.desired},
        record(),
        revision=read_if_match(request, path_of(cluster, "policies")),
        rollout_settings=body.terms,
        should_roll_out=body.roll_out,
        actor=actor_of(request),
        now=timezone.now(),
    )
    return Status(201, respond_with_change(response, change))
