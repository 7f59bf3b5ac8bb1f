"""API routes of policies: read running and desired values and presets, plan a change. docs/reference/api.md."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from ninja import Query, Router, Status
from pydantic import Field

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
from fleet.changes.policies import desired_state, matrix, planner
from fleet.models.access import Permission
from fleet.protocol.policies import env_policies
from fleet.protocol.policies.presets import PRESETS, PRESETS_BY_SLUG
from fleet.vocabulary.capabilities import Capability
from fleet.vocabulary.changes import ChangeKind

router = Router()
per_cluster = PerCluster(router)
_VIEW, _CHANGE_CONFIG = ApiAccess(Permission.VIEW_FLEET), ApiAccess(Permission.CHANGE_CONFIG)
_IF_MATCH_201 = document_if_match("/policies", 201)


class PolicyItem(Schema):
    """A policy of an instance."""

    name: str
    """Name of the environment variable."""
    state: str
    """How the value compares with the desired value: `not-managed` (there is no desired value), `matches`,
    `restart-required`, `drift`, `left-over` (not managed any more, but still in the instance's file) or `unknown`.
    """
    desired_value: str
    """Desired value; empty when the policy is not managed."""
    desired_source: str
    """Where the desired value comes from: `role` or `instance`; empty when the policy is not managed."""
    current_value: str | None
    """Value that the instance runs with; null when unknown."""
    source: str | None
    """Source of that value: `flag`, `file`, `env` or `default`; null when unknown."""
    next_value: str | None
    """Value after the next restart; null when unknown."""
    unmanaged_value: str | None
    """Value without any desired value; null when the instance does not report it."""


class InstancePoliciesItem(Schema):
    """An instance with its policies."""

    id: str
    """Host UUID of the instance."""
    name: str
    """Name of the instance."""
    role: str
    """Role: `auth` or `proxy`."""
    accepts_policies: bool
    """Whether the instance accepts policies over the network and restarts itself."""
    note: str
    """Why the instance does not; empty when it does."""
    policies: list[PolicyItem]
    """Policies of the instance."""


class PoliciesResponse(Schema):
    """Desired values, and the values that instances run with."""

    cluster: str
    """Id of the cluster."""
    revision: str
    """Revision of the desired values; the ETag has it too."""
    desired_values: dict[str, dict[str, str]]
    """Desired values by role or instance id, then by policy."""
    instances: list[InstancePoliciesItem]
    """Instances with their policies."""
    deregistered: dict[str, dict[str, str]]
    """Desired values of deregistered instances, by instance id."""


class PolicyPresetItem(Schema):
    """Values of several policies under a name."""

    name: str
    """Name of the preset, to plan it: `recommended` or `failover`."""
    label: str
    """Label of the preset on pages."""
    description: str
    """What the values do together."""
    is_in_effect: bool
    """Whether all values of the preset are the desired values of their roles."""
    desired_values: dict[str, dict[str, str]]
    """Values of the preset by role, then by policy, as they are stored."""


class PolicyPresetsResponse(Schema):
    """A list of presets."""

    cluster: str
    """Id of the cluster."""
    revision: str
    """Revision of the desired values; the ETag has it too."""
    presets: list[PolicyPresetItem]
    """Presets in the order of the page."""


class PolicyPlanRequest(RequestBody):
    """A change of desired values: exactly one of `desired_values` and `preset`."""

    desired_values: dict[str, dict[str, str]] | None = None
    """Desired values by role or instance id. A target that is named gets exactly these policies; other targets
    stay as they are.
    """
    preset: Annotated[str, Field(max_length=40)] = ""
    """Name of a preset. Its values become the desired values of their roles; all other desired values stay as they are.
    """
    roll_out: bool = True
    """Whether instances are restarted so that the new values take effect."""
    settings: Annotated[dict[str, int | str], Field(default_factory=dict)]
    """Rollout settings as whole numbers: `concurrency` (instances at a time), `drain_seconds`, `soak_seconds` and
    `timeout_seconds`.
    """


@per_cluster.get(
    "/policies",
    auth=_VIEW,
    response={200: PoliciesResponse, **REFUSAL_RESPONSES},
    openapi_extra=document_etag(),
)
def get_policies(request: HttpRequest, response: HttpResponse, cluster: str) -> Any:
    """Get the policies.

    The response has the desired values and the values that instances run with. Send its ETag as If-Match when you
    plan a change.
    """
    require_capability(require_cluster(cluster), Capability.POLICIES)
    desired_values = desired_state.desired_values_of(cluster)
    rows = planner.instance_rows_of(cluster, desired_values, take_record_snapshot())
    revision = desired_state.revision_of(desired_values)
    set_etag(response, revision)
    return PoliciesResponse(
        cluster=cluster,
        revision=revision,
        desired_values=desired_values,
        instances=[
            InstancePoliciesItem(
                id=row.id,
                name=row.name,
                role=row.role,
                accepts_policies=row.is_managed,
                note=row.note,
                policies=[
                    PolicyItem(
                        name=cell.policy.name,
                        state=cell.state.value,
                        desired_value=cell.desired_value,
                        desired_source=cell.desired_source,
                        current_value=cell.current_value,
                        source=cell.current_source.value if cell.current_source else None,
                        next_value=cell.next_value,
                        unmanaged_value=cell.report.fallback_value.text
                        if cell.report and cell.report.fallback_value
                        else None,
                    )
                    for cell in row.cells
                ],
            )
            for row in rows
        ],
        deregistered=matrix.desired_values_of_deregistered(rows, desired_values),
    )


@per_cluster.get(
    "/policies/presets",
    auth=_VIEW,
    response={200: PolicyPresetsResponse, **REFUSAL_RESPONSES},
    openapi_extra=document_etag(),
)
def list_policy_presets(request: HttpRequest, response: HttpResponse, cluster: str) -> Any:
    """List the presets of policies.

    Each preset has its values. Plan a preset by its name, with the ETag as If-Match.
    """
    require_capability(require_cluster(cluster), Capability.POLICIES)
    desired_values = desired_state.desired_values_of(cluster)
    revision = desired_state.revision_of(desired_values)
    set_etag(response, revision)
    return PolicyPresetsResponse(
        cluster=cluster,
        revision=revision,
        presets=[
            PolicyPresetItem(
                name=preset.slug,
                label=preset.label,
                description=preset.help,
                is_in_effect=preset.is_in_effect(desired_values),
                desired_values={
                    role: {name: env_policies.normalize(name, text) for name, text in values.items()}
                    for role, values in preset.values.items()
                },
            )
            for preset in PRESETS
        ],
    )


@per_cluster.post(
    "/policies/plan",
    auth=_CHANGE_CONFIG,
    response={201: ChangeResponse, **REFUSAL_RESPONSES},
    openapi_extra=_IF_MATCH_201,
)
def plan_policy_change(
    request: HttpRequest,
    response: HttpResponse,
    cluster: str,
    body: PolicyPlanRequest,
    options: Query[PlanOptions],
) -> Any:
    """Plan a policy change.

    The change is based on the revision in If-Match. Nothing runs before you confirm the change.
    """
    revision, actor, now = (
        read_if_match(request, api_path_of(cluster, "policies")),
        planning_actor_of(request, options),
        timezone.now(),
    )
    require_capability(require_cluster(cluster), Capability.POLICIES)
    with engine.record_refused_plan(ChangeKind.POLICY, cluster, actor, now):
        change = planner.plan_change(
            cluster,
            _read_desired_values(cluster, body),
            take_record_snapshot(),
            revision=revision,
            rollout_settings=body.settings,
            should_roll_out=body.roll_out,
            actor=actor,
            now=now,
        )
    return Status(201, respond_with_change(response, change))


def _read_desired_values(cluster: str, body: PolicyPlanRequest) -> dict[str, dict[str, str]]:
    """Return all desired values with the requested ones. Raises ChangeRefusedError."""
    desired_values = desired_state.desired_values_of(cluster)
    if (body.desired_values is None) is (not body.preset):
        raise ChangeRefusedError(
            "send exactly one of: desired_values, preset", {"preset": "exactly one of the two is required"}
        )
    if body.desired_values is not None:
        return {**desired_values, **body.desired_values}
    preset = PRESETS_BY_SLUG.get(body.preset)
    if preset is None:
        problem = f"preset {body.preset!r} was not found: use {', '.join(PRESETS_BY_SLUG)}"
        raise ChangeRefusedError(problem, {"preset": problem})
    return preset.apply_to(desired_values)
