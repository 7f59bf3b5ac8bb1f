"""API routes of the whole configuration of alerting: export, plan and apply an import. docs/reference/api.md."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router
from pydantic import Field

from dashboards.alerts.api.channels import find_access_refusal
from dashboards.alerts.api.setup_fields import CHANGE
from dashboards.shared import record_reader
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    caller_of,
    request_actor_of,
    require_cluster,
    require_reauthentication,
)
from dashboards.shared.api.parameters import RequestBody, Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.permissions import writable_owners_for
from fleet.alerts.configuration.document import MAX_DOCUMENT_LENGTH
from fleet.alerts.configuration.plan import SettingChange
from fleet.alerts.setup.configuration import (
    ImportPlan,
    ImportRequest,
    apply_import,
    plan_import,
)
from fleet.alerts.setup.stored_configuration import export_configuration
from fleet.models.access import Permission

router = Router()
per_cluster = PerCluster(router)
_MAX_VARIABLE_COUNT = 500

_Text = Annotated[str, Field(max_length=MAX_DOCUMENT_LENGTH)]
_Variables = Annotated[
    dict[str, Annotated[str, Field(max_length=4_000)]],
    Field(default_factory=dict, max_length=_MAX_VARIABLE_COUNT),
]


class AlertingDocument(Schema):
    """The configuration of alerting."""

    cluster: str
    """Id of the cluster."""
    document: str
    """Channels, routes, rules and maintenance windows as YAML, without secrets."""


class PlannedField(Schema):
    """A field that an import changes."""

    field: str
    """Name of the field in the document."""
    before: str
    """Stored value in words; empty for a new object. Secrets are `stored`."""
    after: str
    """New value in words. A new secret is `new value`."""


class PlannedSetting(Schema):
    """An object that an import adds, changes or removes."""

    action: str
    """`add`, `change` or `remove`."""
    kind: str
    """`channel`, `route`, `rule` or `maintenance window`."""
    name: str
    """Name of the object; of a route with the names of its parents."""
    cluster: str
    """Cluster that the object belongs to; empty: the whole installation."""
    fields: list[PlannedField]
    """Fields that change."""


class AlertingPlan(Schema):
    """What an import does."""

    fingerprint: str
    """Text to send with `POST /alerting/apply`; it differs when the configuration or the document differs."""
    changes: list[PlannedSetting]
    """Changes in the order in which they are applied; empty: the configuration is that of the document."""
    is_confirmation_required: bool
    """Whether a maintenance window would silence everything: send `confirmation`."""


class PlanAlertingRequest(RequestBody):
    """A document to import."""

    document: _Text
    """Channels, routes, rules and maintenance windows as YAML."""
    variables: _Variables
    """Secrets by the name in the document: `{"HOOK_URL": "..."}` for `${HOOK_URL}`."""
    prune: bool = False
    """Whether to remove the objects that are not in the document, from the sections that it has."""


class ApplyAlertingRequest(PlanAlertingRequest):
    """A document to import after its plan was reviewed."""

    fingerprint: Annotated[str, Field(max_length=64)]
    """The `fingerprint` of the plan: 409 if the configuration or the document changed since."""
    confirmation: Annotated[str, Field(max_length=20)] = ""
    """The word `everything`, which a maintenance window that silences everything requires."""


@per_cluster.get("/alerting", auth=CHANGE, response={200: AlertingDocument, **REFUSAL_RESPONSES})
def export_alerting(request: HttpRequest, cluster: str) -> Any:
    """Export the alerting configuration.

    The document has what belongs to the cluster and to the whole installation. Secrets are placeholders. Users with a
    cluster limit get only the channels of the cluster.
    """
    owners = writable_owners_for(caller_of(request), Permission.CHANGE_CONFIG, require_cluster(cluster))
    return AlertingDocument(cluster=cluster, document=export_configuration(cluster, owners))


@per_cluster.post("/alerting/plan", auth=CHANGE, response={200: AlertingPlan, **REFUSAL_RESPONSES})
def plan_alerting(request: HttpRequest, cluster: str, body: PlanAlertingRequest) -> Any:
    """Plan an import of the alerting configuration.

    The response has what would be added, changed and removed. Nothing is stored. `problems` of an error names the lines
    of the document.
    """
    return _alerting_plan_of(plan_import(_import_request_of(request, cluster, body)))


@per_cluster.post("/alerting/apply", auth=CHANGE, response={200: AlertingPlan, **REFUSAL_RESPONSES})
def apply_alerting(request: HttpRequest, cluster: str, body: ApplyAlertingRequest) -> Any:
    """Import the alerting configuration.

    All changes of the plan are applied, or none. What the document does not name is kept, unless `prune` is true.
    """
    require_reauthentication(request)
    import_request = _import_request_of(request, cluster, body, typed_word=body.confirmation)
    return _alerting_plan_of(apply_import(import_request, body.fingerprint))


def _import_request_of(
    request: HttpRequest, cluster: str, body: PlanAlertingRequest, *, typed_word: str = ""
) -> ImportRequest:
    user = caller_of(request)
    return ImportRequest(
        cluster=require_cluster(cluster),
        text=body.document,
        variables=body.variables,
        should_prune=body.prune,
        writable_owners=writable_owners_for(user, Permission.CHANGE_CONFIG, cluster),
        can_allow_private=find_access_refusal(request) == "",
        actor=request_actor_of(request),
        creator=user.get_username(),
        now=record_reader.current_time(),
        typed_word=typed_word,
    )


def _alerting_plan_of(plan: ImportPlan) -> AlertingPlan:
    return AlertingPlan(
        fingerprint=plan.fingerprint,
        changes=[_planned_setting_of(change) for change in plan.changes],
        is_confirmation_required=plan.is_confirmation_required,
    )


def _planned_setting_of(change: SettingChange) -> PlannedSetting:
    return PlannedSetting(
        action=change.action.value,
        kind=change.setting.section.noun,
        name=change.setting.label,
        cluster=change.setting.cluster,
        fields=[
            PlannedField(field=field.field, before=field.before, after=field.after) for field in change.fields
        ],
    )
