"""Env-driven policies by the API: what runs beside what is wanted, and plans of other values. docs/api.md."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Router, Schema, Status
from pydantic import Field

from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSALS,
    ChangeAnswer,
    address,
    answer,
    base_of,
    by,
    carries_etag,
    known,
    tagged,
    wants_if_match,
)
from dashboards.shared.api.parameters import Body
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.record_reader import record
from fleet.changes.policies import desired, matrix, planning
from fleet.models.access import Permission

router = Router()
per_cluster = PerCluster(router)
_VIEW, _CHANGE = ApiAccess(Permission.VIEW_FLEET), ApiAccess(Permission.CHANGE_CONFIG)
_PLANS = wants_if_match("/policies", 201)


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


class Wanted(Body):
    """Other values: of each target named all its policies; other targets stay as they are."""

    desired: dict[str, dict[str, str]]
    #: Restart instances with it.
    roll_out: bool = True
    #: at_once, drain, settle, patience; whole numbers.
    terms: Annotated[dict[str, int | str], Field(default_factory=dict)]


@per_cluster.get(
    "/policies",
    auth=_VIEW,
    response={200: PoliciesAnswer, **REFUSALS},
    openapi_extra=carries_etag(),
)
def policies(request: HttpRequest, response: HttpResponse, cluster: str) -> Any:
    """Read what instances run with and what is wanted; the ETag is what a plan wants as If-Match."""
    wanted = desired.wanted_of(known(cluster))
    lines = planning.lines_of(cluster, wanted, record())
    revision = desired.revision_of(wanted)
    tagged(response, revision)
    return PoliciesAnswer(
        cluster=cluster,
        revision=revision,
        desired=wanted,
        instances=[
            InstancePolicies(
                id=line.id,
                name=line.name,
                role=line.role,
                takes=line.ours,
                note=line.note,
                policies=[
                    PolicyItem(
                        name=cell.policy.name,
                        state=cell.state.value,
                        desired=cell.desired,
                        desired_of=cell.desired_of,
                        value=cell.now,
                        source=cell.source.value if cell.source else None,
                        next_value=cell.following,
                        beneath=cell.report.beneath.text if cell.report and cell.report.beneath else None,
                    )
                    for cell in line.cells
                ],
            )
            for line in lines
        ],
        gone=matrix.gone(lines, wanted),
    )


@per_cluster.post(
    "/policies/plan",
    auth=_CHANGE,
    response={201: ChangeAnswer, **REFUSALS},
    openapi_extra=_PLANS,
)
def plan(request: HttpRequest, response: HttpResponse, cluster: str, wanted: Wanted) -> Any:
    """Plan other policies, on the revision in If-Match; nothing happens before it is confirmed."""
    change = planning.plan(
        known(cluster),
        {**desired.wanted_of(cluster), **wanted.desired},
        record(),
        revision=base_of(request, address(cluster, "policies")),
        terms=wanted.terms,
        roll_out=wanted.roll_out,
        by=by(request),
        now=timezone.now(),
    )
    return Status(201, answer(response, change))
