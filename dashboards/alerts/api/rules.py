"""API routes of alert rules, and their backtest. docs/reference/api.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Status
from ninja.errors import HttpError
from pydantic import Field

from dashboards.alerts.api.setup_fields import (
    CHANGE,
    VIEW,
    Name,
    Scope,
    SeverityName,
    Version,
    parse_severity,
    require_new_owner,
    require_writable,
)
from dashboards.alerts.api.writable_rows import require_owner, require_row
from dashboards.alerts.backtest_results import backtest_rule
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    request_actor_of,
    require_cluster,
    require_reauthentication,
)
from dashboards.shared.api.parameters import QueryParameters, RequestBody, Schema
from dashboards.shared.api.per_cluster import PerCluster
from fleet.alerts import setup_actions
from fleet.alerts.rules import (
    MAX_AGENT_SET_LENGTH,
    MAX_RULE_NUMBER,
    MAX_RUNBOOK_LENGTH,
    RuleKind,
    describe_condition,
    describe_notifications,
    find_rule_problems,
)
from fleet.alerts.setup.problems import require_no_problems
from fleet.alerts.setup.rules import delete_rule, save_rule
from fleet.alerts.setup.versions import version_of
from fleet.alerts.store import rule_of
from fleet.models.access import Permission
from fleet.models.alerting import AlertRule, filter_applicable_to
from fleet.vocabulary.incidents import Severity

router = Router()
per_cluster = PerCluster(router)

_Count = Annotated[int, Field(ge=0, le=MAX_RULE_NUMBER)]
_Seconds = Annotated[float, Field(ge=0, le=MAX_RULE_NUMBER)]
_Share = Annotated[float, Field(ge=0, le=1)]
_AgentSet = Annotated[str, Field(max_length=MAX_AGENT_SET_LENGTH)]
_Runbook = Annotated[str, Field(max_length=MAX_RUNBOOK_LENGTH)]
_KindName = Annotated[str, Field(json_schema_extra={"enum": [kind.value for kind in RuleKind]})]
#: Columns of a rule by field of the API, where the names differ.
_COLUMN_OF_FIELD = {
    "is_enabled": "enabled",
    "group_wait_seconds": "group_wait",
    "group_interval_seconds": "group_interval",
}


class RuleItem(Schema):
    """An alert rule; times in seconds."""

    number: int
    """Number of the rule."""
    cluster: str
    """Cluster that the rule belongs to; empty: the whole installation."""
    name: str
    """Name of the rule."""
    kind: str
    """Condition of the rule: `stranded`, `at-risk`, `instance`, `backend`, `unreachable`, `rate`, `excess`, `drift` or
    `blind`.
    """
    severity: str
    """Severity of its incidents: `info`, `warning` or `critical`."""
    condition: str
    """The condition in words: `When 5 agents are stranded by one cause for 2 polls.`"""
    notifications: str
    """When it notifies, in words: `Notify after 30 s, again every 4 h until acknowledged.`"""
    is_enabled: bool
    """Whether the rule is evaluated."""
    is_builtin: bool
    """Whether it is a built-in rule, which cannot be deleted or renamed."""
    is_overridden: bool
    """Whether a rule of the cluster with the same name applies instead."""
    min_count: int
    """Minimum number of agents."""
    min_share: float
    """Minimum share of agents, 0 to 1. Both must be reached."""
    agent_set: str
    """Only agents of this agent set count; empty: all agents."""
    pending_rounds: int
    """Number of consecutive polls that the rule must match before it fires."""
    pending_seconds: float
    """Time that the rule must match before it fires."""
    recover_seconds: float
    """Time without findings after which the incident resolves."""
    group_wait_seconds: float
    """Group wait before the first notification."""
    group_interval_seconds: float
    """Minimum interval of updates."""
    repeat_seconds: float
    """Repeat interval until somebody acknowledges the incident."""
    runbook: str
    """URL of the runbook; empty: the built-in one."""
    version: str
    """Version of the values: a change may name the version that it is based on."""


class RulesResponse(Schema):
    """A list of alert rules."""

    cluster: str
    """Id of the cluster."""
    rules: list[RuleItem]
    """Rules of the cluster and of the whole installation."""


class FiringFields(Schema):
    """When a rule fires, and when its incident resolves."""

    min_count: _Count | None = None
    """Minimum number of agents."""
    min_share: _Share | None = None
    """Minimum share of agents, 0 to 1."""
    agent_set: _AgentSet | None = None
    """Only agents of this agent set count; empty: all agents."""
    pending_rounds: _Count | None = None
    """Number of consecutive polls that the rule must match before it fires."""
    pending_seconds: _Seconds | None = None
    """Time that the rule must match before it fires."""
    recover_seconds: _Seconds | None = None
    """Time without findings after which the incident resolves."""


class RuleFields(RequestBody, FiringFields):
    """New values of an alert rule. What is left out does not change."""

    name: Name | None = None
    """Name of the rule."""
    kind: _KindName | None = None
    """Condition of the rule."""
    severity: SeverityName | None = None
    """Severity of its incidents: `info`, `warning` or `critical`."""
    is_enabled: bool | None = None
    """Whether the rule is evaluated."""
    group_wait_seconds: _Seconds | None = None
    """Group wait before the first notification."""
    group_interval_seconds: _Seconds | None = None
    """Minimum interval of updates."""
    repeat_seconds: _Seconds | None = None
    """Repeat interval until somebody acknowledges the incident."""
    runbook: _Runbook | None = None
    """URL of the runbook, beginning with `https://` or `http://`; empty: the built-in one."""


class CreateRuleRequest(RuleFields):
    """A new alert rule."""

    name: Name
    """Name of the rule."""
    kind: _KindName
    """Condition of the rule."""
    severity: SeverityName
    """Severity of its incidents: `info`, `warning` or `critical`."""
    scope: Scope = Scope.INSTALLATION
    """`installation`, or `cluster` for a rule of the cluster of the path, which overrides one of the same name."""


class ChangeRuleRequest(RuleFields):
    """New values of an alert rule. What is left out does not change."""

    version: Version = ""
    """Version that the change is based on: 409 if somebody changed the rule since. Empty: any."""


class BacktestParameters(QueryParameters, FiringFields):
    """Values to try instead of those of the rule."""


class BacktestPeriod(Schema):
    """A time at which the rule would have fired."""

    at: datetime
    """When it would have fired."""
    duration: str
    """For how long."""
    peak_count: int
    """Largest number of agents."""
    cause: str
    """Name of the cause; empty for none."""
    incident: int | None
    """Number of the incident of that time; null if there was none."""
    inhibited_by: str
    """Name of the cause that inhibited the incident; empty for none."""


class BacktestResponse(Schema):
    """When a rule would have fired in the last 7 days."""

    summary: str
    """The result in one sentence, or why the rule cannot be backtested."""
    condition: str
    """The condition that was tried; empty without a rule_backtest."""
    is_supported: bool
    """Whether rules of this kind can be backtested."""
    periods: list[BacktestPeriod]
    """The newest 20 times, newest first."""
    omitted_count: int
    """Number of older times."""


@per_cluster.get("/alert-rules", auth=VIEW, response={200: RulesResponse, **REFUSAL_RESPONSES})
def list_alert_rules(request: HttpRequest, cluster: str) -> Any:
    """List alert rules.

    The list has the rules of the cluster and of the whole installation, also disabled and overridden ones.
    """
    rows = list(filter_applicable_to(AlertRule.objects.all(), require_cluster(cluster)))
    overridden_names = {row.name for row in rows if row.cluster}
    return RulesResponse(cluster=cluster, rules=[_rule_item_of(row, overridden_names) for row in rows])


@per_cluster.post("/alert-rules", auth=CHANGE, response={201: RuleItem, **REFUSAL_RESPONSES})
def create_alert_rule(request: HttpRequest, cluster: str, body: CreateRuleRequest) -> Any:
    """Create an alert rule.

    Values that are left out have their defaults: 1 agent, 2 polls, 5 min until it resolves, a repeat interval of 4 h.
    """
    row = AlertRule(cluster=require_new_owner(request, cluster, body.scope))
    _apply(row, body)
    save_rule(row, request_actor_of(request))
    return Status(201, _rule_item_of(row, _read_overriding_names(cluster)))


@per_cluster.get("/alert-rules/{int:number}", auth=VIEW, response={200: RuleItem, **REFUSAL_RESPONSES})
def get_alert_rule(request: HttpRequest, cluster: str, number: int) -> Any:
    """Get an alert rule.

    The response has its condition in words.
    """
    return _rule_item_of(_require_rule(cluster, number), _read_overriding_names(cluster))


@per_cluster.post("/alert-rules/{int:number}", auth=CHANGE, response={200: RuleItem, **REFUSAL_RESPONSES})
def change_alert_rule(request: HttpRequest, cluster: str, number: int, body: ChangeRuleRequest) -> Any:
    """Change an alert rule.

    Fields that are left out keep their values. `"is_enabled": false` disables the rule.
    """
    row = _require_rule(cluster, number)
    require_writable(request, row)
    _apply(row, body)
    save_rule(row, request_actor_of(request), seen_version=body.version)
    return _rule_item_of(row, _read_overriding_names(cluster))


@per_cluster.post(
    "/alert-rules/{int:number}/override", auth=CHANGE, response={200: RuleItem, **REFUSAL_RESPONSES}
)
def override_alert_rule(request: HttpRequest, cluster: str, number: int) -> Any:
    """Override an alert rule of the whole installation in a cluster.

    The response is the rule of the cluster, a copy unless it was there already.
    """
    row = _require_rule(cluster, number)
    require_owner(request, Permission.CHANGE_CONFIG, cluster)
    require_reauthentication(request)
    if row.cluster:
        raise HttpError(409, f"{row.name} is a rule of cluster {row.cluster} already. Change that rule.")
    override = setup_actions.override_rule(row, cluster, request_actor_of(request))
    return _rule_item_of(override, _read_overriding_names(cluster))


@per_cluster.post(
    "/alert-rules/{int:number}/delete", auth=CHANGE, response={200: RuleItem, **REFUSAL_RESPONSES}
)
def delete_alert_rule(request: HttpRequest, cluster: str, number: int) -> Any:
    """Delete an alert rule.

    Built-in rules cannot be deleted. After the deletion of a rule that overrides another, the other applies again. The
    response has the last values.
    """
    row = _require_rule(cluster, number)
    require_writable(request, row)
    last_values = _rule_item_of(row, _read_overriding_names(cluster))
    delete_rule(row, request_actor_of(request))
    return last_values


@per_cluster.get(
    "/alert-rules/{int:number}/backtest", auth=VIEW, response={200: BacktestResponse, **REFUSAL_RESPONSES}
)
def backtest_alert_rule(
    request: HttpRequest, cluster: str, number: int, parameters: Query[BacktestParameters]
) -> Any:
    """Backtest an alert rule.

    The response has when the rule would have fired in the last 7 days, with the values of the parameters instead of
    its own. Nothing is stored.
    """
    row = _require_rule(cluster, number)
    for name, value in parameters.model_dump(exclude_none=True).items():
        setattr(row, name, value)
    rule = rule_of(row)
    require_no_problems(find_rule_problems(rule))
    rule_backtest = backtest_rule(rule, cluster)
    return BacktestResponse(
        summary=rule_backtest.summary,
        condition=rule_backtest.condition,
        is_supported=rule_backtest.is_supported,
        periods=[
            BacktestPeriod(
                at=period.at,
                duration=period.duration,
                peak_count=period.peak_count,
                cause=period.cause,
                incident=period.incident_number,
                inhibited_by=period.inhibited_by,
            )
            for period in rule_backtest.rows
        ],
        omitted_count=rule_backtest.omitted_count,
    )


def _require_rule(cluster: str, number: int) -> AlertRule:
    return require_row(AlertRule.objects.all(), cluster, number, "rule")


def _read_overriding_names(cluster: str) -> set[str]:
    return set(AlertRule.objects.filter(cluster=cluster).values_list("name", flat=True))


def _apply(row: AlertRule, body: RuleFields) -> None:
    """Write the values of a request to a rule. Raises HttpError 400."""
    for name, value in body.model_dump(exclude_none=True, exclude={"scope", "version", "severity"}).items():
        setattr(row, _COLUMN_OF_FIELD.get(name, name), value)
    if body.kind is not None and body.kind not in set(RuleKind):
        raise HttpError(400, f"{body.kind[:50]!r} is not a kind of rule. Use {', '.join(RuleKind)}.")
    if body.severity is not None:
        row.severity = int(parse_severity(body.severity))


def _rule_item_of(row: AlertRule, overriding_names: set[str]) -> RuleItem:
    rule = rule_of(row)
    return RuleItem(
        number=row.pk,
        cluster=row.cluster,
        name=row.name,
        kind=row.kind,
        severity=Severity(row.severity).slug,
        condition=f"{describe_condition(rule)}.",
        notifications=f"{describe_notifications(rule)}.",
        is_enabled=row.enabled,
        is_builtin=row.builtin,
        is_overridden=not row.cluster and row.name in overriding_names,
        min_count=row.min_count,
        min_share=row.min_share,
        agent_set=row.agent_set,
        pending_rounds=row.pending_rounds,
        pending_seconds=row.pending_seconds,
        recover_seconds=row.recover_seconds,
        group_wait_seconds=row.group_wait,
        group_interval_seconds=row.group_interval,
        repeat_seconds=row.repeat_seconds,
        runbook=row.runbook,
        version=version_of(row),
    )
