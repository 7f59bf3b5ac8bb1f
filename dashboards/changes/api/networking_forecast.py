"""API route of the forecast of a networking config: its effect on tunnels, without a plan. docs/reference/api.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router
from pydantic import Field

from dashboards.changes.networking_forecast import changed_fields_of
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import REFUSAL_RESPONSES, require_cluster
from dashboards.shared.api.parameters import QueryParameters, Schema
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.capabilities.missing import require_capability
from dashboards.shared.record_reader import take_record_snapshot
from fleet.changes import ChangeRefusedError
from fleet.changes.networking import revisions as networking
from fleet.changes.networking.closing_plan import closing_rule_of
from fleet.changes.networking.plan_input import fleet_snapshot_of
from fleet.changes.networking.preview import preview_config
from fleet.models.access import Permission
from fleet.protocol.networking import config as rules
from fleet.protocol.networking.config import NetworkingConfig, NetworkingConfigError
from fleet.vocabulary.capabilities import Capability

router = Router()
per_cluster = PerCluster(router)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_MAX_FIELDS = 100


class NetworkingForecastFilters(QueryParameters):
    """Query parameters of the forecast."""

    field: Annotated[list[str], Field(default_factory=list, max_length=_MAX_FIELDS)]
    """A changed field as `KEY=VALUE`, as people write it: `agent_connection_count=2`. Repeat the parameter for several
    fields; without it the forecast is that of the current config.
    """


class NetworkingFieldItem(Schema):
    """A field that differs from the current config."""

    key: str
    """Key of the field."""
    before: str
    """Current value, as pages show it."""
    after: str
    """New value, as pages show it."""


class ClosingStepItem(Schema):
    """The nth closing of each agent."""

    nth: int
    """1 for the first tunnel that an agent closes, 2 for the second."""
    tunnel_count: int
    """Number of tunnels that close."""
    earliest_seconds: float
    """Earliest closing, in seconds after the change."""
    latest_seconds: float
    """Latest closing, in seconds after the change."""


class ProxyTunnelsItem(Schema):
    """The tunnels of a proxy before and after the change."""

    id: str
    """Host UUID of the proxy."""
    name: str
    """Name of the proxy."""
    tunnels_before: int
    """Number of tunnels now."""
    tunnels_after: list[int]
    """Lowest and highest number of tunnels afterwards."""
    closing_count: list[int]
    """Lowest and highest number of tunnels that close."""
    opening_count: list[int]
    """Lowest and highest number of tunnels that agents open."""


class ClosingForecastItem(Schema):
    """Tunnels that close and open, as in `closing` of the plan of a change. A pair is the lowest and highest number."""

    rule: str
    """Closing rule: `none`, `rfd` (RFD 226, graceful_tunnel_closing) or `upstream` (tunnel_disconnect_threshold)."""
    rule_label: str
    """Label of the rule."""
    closing_count: list[int]
    """Tunnels that close."""
    excess_count: list[int]
    """How many of them are in excess."""
    expired_count: list[int]
    """How many of them lead to expired proxies."""
    in_use_count: list[int]
    """How many of them carry user connections; each closes after its last one."""
    agent_count: list[int]
    """Agents that close at least one tunnel."""
    single_tunnel_agent_count: int
    """Agents that keep exactly one tunnel after their closings."""
    opening_count: int
    """Tunnels that agents open."""
    opening_agent_count: int
    """Agents that open tunnels."""
    reaction_seconds: float
    """Time until the last agents act on a new config, about."""
    opening_seconds: float
    """Time until the last missing tunnels are open, about; 0 when none opens."""
    unsupported_agent_count: int
    """Agents with tunnels to close whose version does not support the rule."""
    unknown_version_agent_count: int
    """Agents with tunnels to close whose version is unknown."""
    tunnels_before: int
    """Tunnels of the cluster now."""
    tunnels_after: list[int]
    """Tunnels of the cluster afterwards."""
    steps: list[ClosingStepItem]
    """When tunnels close; empty when none do."""
    proxies: list[ProxyTunnelsItem]
    """Proxies before and after."""
    uncertain_proxies: list[str]
    """Names of proxies that are not healthy now, so that agents may consider them expired."""


class NetworkingForecastResponse(Schema):
    """What a networking config would do now."""

    cluster: str
    """Id of the cluster."""
    revision: str
    """Revision of the current config, with which the fields are compared."""
    as_of: datetime
    """When the data was collected."""
    data_age_seconds: float
    """Age of the data."""
    agent_count: int
    """Number of agents that are not retired."""
    changes: list[NetworkingFieldItem]
    """Fields that differ from the current config."""
    previous_rule: str
    """Label of the current closing rule."""
    closing: ClosingForecastItem
    """Tunnels that would close and open."""
    closing_if_on: ClosingForecastItem | None
    """The same with graceful_tunnel_closing on: its closings stay open now. Null when a closing rule is on."""
    notes: list[str]
    """What limits or explains the numbers, as sentences."""


@per_cluster.get(
    "/networking-config/forecast",
    auth=_VIEW,
    response={200: NetworkingForecastResponse, **REFUSAL_RESPONSES},
)
def forecast_networking_config(
    request: HttpRequest, cluster: str, filters: Query[NetworkingForecastFilters]
) -> Any:
    """Forecast a networking config.

    Nothing is stored: the response says which tunnels would close, when, which would stay open, and which agents would
    open. A cluster whose source does not name the agents of each tunnel has no forecast.
    """
    for capability in (Capability.NETWORKING_READ, Capability.TUNNELS_BY_AGENT):
        require_capability(require_cluster(cluster), capability)
    current = networking.require_current_revision(cluster)
    before = rules.with_defaults(networking.resource_of(current).config)
    after = _read_edited_config(cluster, before, filters.field)
    record = take_record_snapshot()
    fleet = fleet_snapshot_of(record.table(cluster), record.reader.agent_responses(cluster), record.now)
    preview = preview_config(before, after, fleet)
    return NetworkingForecastResponse(
        cluster=cluster,
        revision=current.revision,
        as_of=datetime.fromtimestamp(fleet.as_of, UTC),
        data_age_seconds=round(fleet.age_seconds, 1),
        agent_count=fleet.agent_count,
        changes=[
            NetworkingFieldItem(key=row.key, before=row.before, after=row.after)
            for row in changed_fields_of(before, after)
        ],
        previous_rule=closing_rule_of(before).label,
        closing=ClosingForecastItem(**preview.closing),
        closing_if_on=None if preview.closing_if_on is None else ClosingForecastItem(**preview.closing_if_on),
        notes=list(preview.notes),
    )


def _read_edited_config(cluster: str, config: NetworkingConfig, texts: Sequence[str]) -> NetworkingConfig:
    """Return the config with some fields set, each as `KEY=VALUE`. Raises ChangeRefusedError, with problems by key."""
    pairs = [text.partition("=") for text in texts]
    if any(not equals for _, equals, _ in pairs):
        raise ChangeRefusedError("send each field as KEY=VALUE", {"field": "expected KEY=VALUE"})
    try:
        edited_config = rules.set_fields(config, {key.strip(): text for key, _, text in pairs})
    except NetworkingConfigError as error:
        raise ChangeRefusedError(
            str(error), {problem.key: problem.sentence for problem in error.problems}
        ) from None
    edited_config = rules.with_defaults(edited_config)
    networking.check_config(cluster, config, edited_config)
    return edited_config
