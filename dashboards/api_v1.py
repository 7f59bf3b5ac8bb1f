"""`/api/v1`: the fleet as JSON, for API tokens and sessions. docs/reference/api.md.

Routes that read the fleet are here; the others have their own routers. `per_cluster` writes a cluster's routes once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any

from allauth.core.exceptions import ReauthenticationRequired
from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from ninja import NinjaAPI, Query
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.openapi.docs import ABS_TPL_PATH, Swagger
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation
from pydantic import Field
from typing_extensions import override

from dashboards.access import users_api
from dashboards.alerts.api import (
    channels,
    configuration,
    deliveries,
    incidents,
    routes,
    rules,
    runbooks,
    silences,
    windows,
)
from dashboards.changes.api import (
    changes,
    degrade,
    drain,
    networking,
    networking_forecast,
    policies,
    reconnect,
    service,
)
from dashboards.clusters import api as clusters
from dashboards.clusters import connection_test_api
from dashboards.fleet import agent_query
from dashboards.fleet.agent_history import read_agent_changes
from dashboards.fleet.agent_query import MAX_LIMIT, PAGE_SIZE, QueryError
from dashboards.fleet.api import agent_sets, history, responses, retire, saved_views, schemas, timeline
from dashboards.fleet.timeline.buckets import split_range
from dashboards.fleet.timeline.comparison_rows import compare_moments
from dashboards.fleet.timeline.count_history import count_periods
from dashboards.fleet.timeline.time_range import parse_range
from dashboards.instances import api as instances
from dashboards.instances import edge_api
from dashboards.shared import headlines, record_reader, refusals
from dashboards.shared.api import change_responses
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.parameters import QueryParameters
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.api.validation_errors import describe_validation_errors
from dashboards.shared.pages import sentence_of
from dashboards.shared.permissions import public
from dashboards.shared.refusals import DATABASE_UNAVAILABLE
from dashboards.shared.rewind import Moment, MomentError, open_moment
from dashboards.system.data_health import api as data_health
from fleet import __version__
from fleet.alerts.configuration.document import ConfigurationError
from fleet.alerts.setup.problems import SetupChangedError, SetupError
from fleet.changes import CapabilityMissingError, ChangeRefusedError, StaleRevisionError
from fleet.changes.operations import drains
from fleet.clusters.service import ClusterChangedError, ClusterError
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.models.moments import to_seconds
from fleet.monitoring.history.minute_columns import read_count_columns, read_recorded_range
from fleet.monitoring.state import StateError
from fleet.monitoring.state.tables import summary_of

logger = logging.getLogger(__name__)


def _make_docs_public(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Let everybody read the API documentation. Swagger, from ninja's wheel, writes style attributes."""
    return public(csp_update({"style-src-attr": [UNSAFE_INLINE]})(view))


class _Docs(Swagger):
    """Swagger from ninja's wheel: without the app `ninja`, its own template would load the scripts from a CDN."""

    template_cdn = str(ABS_TPL_PATH / "swagger.html")


class _Api(NinjaAPI):
    """NinjaAPI that renders its OpenAPI document once: rendering takes half a second, and anybody may request it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._documents: dict[str, OpenAPISchema] = {}

    @override
    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        """Return the OpenAPI document for a path prefix; routes do not change while the console runs."""
        prefix = self.get_root_path(path_params or {}) if path_prefix is None else path_prefix
        if prefix not in self._documents:
            self._documents[prefix] = super().get_openapi_schema(path_prefix=prefix)
        return self._documents[prefix]

    @override
    def get_openapi_operation_id(self, operation: Operation) -> str:
        """Return the id of an operation: the name of its function, verb and noun."""
        return str(operation.view_func.__name__)


api = _Api(
    title="Refloat",
    version="1",
    description="States of the agents, auths and proxies of a Teleport fleet, and incidents, silences and changes.",
    urls_namespace="api-1",
    docs=_Docs(),
    docs_decorator=_make_docs_public,
)

api.add_router("", networking.router)
api.add_router("", networking_forecast.router)
api.add_router("", policies.router)
api.add_router("", reconnect.router)
api.add_router("", changes.router)
api.add_router("", incidents.router)
api.add_router("", silences.router)
api.add_router("", windows.router)
api.add_router("", runbooks.router)
api.add_router("", channels.router)
api.add_router("", deliveries.router)
api.add_router("", routes.router)
api.add_router("", rules.router)
api.add_router("", configuration.router)
api.add_router("", retire.router)
api.add_router("", agent_sets.router)
api.add_router("", saved_views.router)
api.add_router("", drain.router)
api.add_router("", degrade.router)
api.add_router("", service.router)
api.add_router("", instances.router)
api.add_router("", edge_api.router)
api.add_router("", clusters.router)
api.add_router("", connection_test_api.router)
api.add_router("", data_health.router)
api.add_router("", users_api.router)

per_cluster = PerCluster(api)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_VIEW_ANY = ApiAccess(Permission.VIEW_FLEET, is_per_cluster=False)
#: Error responses of every route.
_PROBLEM_RESPONSES = {frozenset({400, 401, 403, 404, 503}): schemas.Problem}


class MomentParameters(QueryParameters):
    """Query parameters of everything that can be shown as of a past moment."""

    at: str = ""
    """Past moment as ISO 8601 with an offset, `2026-11-23T10:14:07Z`: the fleet as the history has it. Empty: now."""


class AgentFilters(MomentParameters):
    """Query parameters of the list of agents."""

    state: Annotated[list[str], Field(default_factory=list)]
    """State of the agents, or `-state` for every other state. Repeat the parameter for several states."""
    proxy: str = ""
    """Name or id of a proxy of the agents."""
    auth: str = ""
    """Name or id of the auth of the agents."""
    q: str = ""
    """Filter in the syntax of the Agents page: `state:stranded label.env:prod -version:1.2.* web`."""
    sort: str = ""
    """Sort key: `name`, `state`, `since` or `version`; a leading minus reverses the order."""
    cursor: str | None = None
    """Value of `next` in the previous page."""
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = PAGE_SIZE
    """Most agents in the response."""


@per_cluster.get("/fleet/summary", auth=_VIEW, response={200: schemas.SummaryResponse, **_PROBLEM_RESPONSES})
def get_fleet_summary(request: HttpRequest, cluster: str, parameters: Query[MomentParameters]) -> Any:
    """Get the fleet summary.

    The response has the number of agents by state, and the headline: why agents are affected, since when, whether they
    recover automatically, and what helps. All of it is of one round.
    """
    moment = open_moment(parameters.at, change_responses.require_cluster(cluster))
    table = moment.reader.table(cluster, moment.now)
    headline = headlines.headline_at(moment, cluster)
    return responses.summary_response_of(summary_of(table), headline, moment.now)


@per_cluster.get(
    "/fleet/history", auth=_VIEW, response={200: timeline.FleetHistoryResponse, **_PROBLEM_RESPONSES}
)
def get_fleet_history(
    request: HttpRequest, cluster: str, filters: Query[timeline.FleetHistoryFilters]
) -> Any:
    """Get the number of agents over time.

    The response has the maxima of stranded and at-risk agents, and the number of agents by state, for each of up to
    400 periods of a time range.
    """
    change_responses.require_cluster(cluster)
    time_range = parse_range({"since": filters.since, "until": filters.until}, record_reader.current_time())
    buckets = split_range(time_range.since, time_range.until)
    recorded = read_recorded_range(cluster)
    return timeline.fleet_history_response_of(
        cluster,
        count_periods(read_count_columns(cluster, buckets.since, buckets.until), buckets),
        since=buckets.since,
        until=buckets.until,
        step=buckets.step,
        recorded_since=None if recorded is None else recorded[0],
    )


@per_cluster.get(
    "/fleet/comparison", auth=_VIEW, response={200: timeline.ComparisonResponse, **_PROBLEM_RESPONSES}
)
def compare_fleet(request: HttpRequest, cluster: str, filters: Query[timeline.ComparisonFilters]) -> Any:
    """Compare two moments.

    The response has the number of agents by state at both moments, and the instances and agents that differ.
    """
    compared = compare_moments(filters.a, filters.b, change_responses.require_cluster(cluster))
    return timeline.comparison_response_of(cluster, compared, filters)


@per_cluster.get("/agents", auth=_VIEW, response={200: schemas.AgentsResponse, **_PROBLEM_RESPONSES})
def list_agents(request: HttpRequest, cluster: str, filters: Query[AgentFilters]) -> Any:
    """List agents.

    Agents must match every filter that is set. Follow `next` for further pages.
    """
    moment = open_moment(filters.at, change_responses.require_cluster(cluster))
    reader, now = moment.reader, moment.now
    table = reader.table(cluster, now)
    query = agent_query.narrow(
        agent_query.parse(filters.q),
        states=filters.state,
        proxies=[filters.proxy] if filters.proxy else [],
        auths=[filters.auth] if filters.auth else [],
    )
    page = agent_query.select_page(
        table, query, cursor=filters.cursor, limit=filters.limit, sort=filters.sort
    )
    return schemas.AgentsResponse(
        **responses.build_dated_fields(cluster, table.as_of, now, is_stale=table.stale),
        total_count=page.total_count,
        next=page.next_cursor,
        agents=responses.agent_items_of(
            (reader.agent(table, index) for index in page.indices), table.instances.values()
        ),
    )


@per_cluster.get(
    "/agents/{agent_id}", auth=_VIEW, response={200: schemas.AgentResponse, **_PROBLEM_RESPONSES}
)
def get_agent(request: HttpRequest, cluster: str, agent_id: str, parameters: Query[MomentParameters]) -> Any:
    """Get an agent.

    The response has the state of the agent, and the data that the state was derived from; of a past moment (`at`) only
    the state and the places, because heartbeats and reports are not kept.
    """
    moment = open_moment(parameters.at, change_responses.require_cluster(cluster))
    explanation = moment.reader.explain(cluster, agent_id, moment.now)
    if explanation is None:
        raise HttpError(404, change_responses.describe_unknown_id("Agent", agent_id, cluster))
    return responses.agent_response_of(cluster, explanation, _requested_drains_at(moment, cluster))


@per_cluster.get(
    "/agents/{agent_id}/history",
    auth=_VIEW,
    response={200: history.AgentHistoryResponse, **_PROBLEM_RESPONSES},
)
def get_agent_history(
    request: HttpRequest, cluster: str, agent_id: str, filters: Query[history.AgentHistoryFilters]
) -> Any:
    """Get the history of an agent.

    The response has the changes of its state and its moves to other auths and proxies, newest first.
    """
    rows = read_agent_changes(
        change_responses.require_cluster(cluster),
        agent_id,
        record_reader.current_time(),
        filters.limit,
        None if filters.before is None else to_seconds(filters.before),
    )
    if rows is None:
        raise HttpError(404, change_responses.describe_unknown_id("Agent", agent_id, cluster))
    return history.agent_history_response_of(cluster, agent_id, rows, filters.limit)


@per_cluster.get("/instances", auth=_VIEW, response={200: schemas.InstancesResponse, **_PROBLEM_RESPONSES})
def list_instances(request: HttpRequest, cluster: str, parameters: Query[MomentParameters]) -> Any:
    """List instances.

    The list has every auth and proxy that was ever seen, with its state.
    """
    moment = open_moment(parameters.at, change_responses.require_cluster(cluster))
    reader, now = moment.reader, moment.now
    summary, requested_drains = reader.summary(cluster, now), _requested_drains_at(moment, cluster)
    return schemas.InstancesResponse(
        **responses.build_dated_fields(cluster, summary.as_of, now, is_stale=summary.stale),
        instances=[
            responses.instance_item_of(view, requested_drains) for view in reader.instances(cluster, now)
        ],
    )


def _requested_drains_at(moment: Moment, cluster: str) -> frozenset[str]:
    """Return the ids of the instances that an operator drained; of a past moment none, because they are not kept."""
    return drains.read_requested_ids(cluster) if moment.past_at is None else frozenset()


@api.get(
    "/version",
    summary="Show the version",
    auth=_VIEW_ANY,
    response={200: schemas.VersionResponse, **_PROBLEM_RESPONSES},
)
def get_version(request: HttpRequest) -> Any:
    """Return the version of Refloat that answers."""
    return schemas.VersionResponse(version=__version__)


@api.exception_handler(AuthenticationError)
def _on_authentication_error(request: HttpRequest, _error: Any) -> HttpResponse:
    sentence = "Not signed in. Sign in, or send a valid API token: `Authorization: Bearer rfl_...`."
    if request.headers.get("Authorization", "").lower().startswith("bearer "):
        sentence = (
            "The API token is wrong, expired or revoked, or its user is disabled. Create a new one on the "
            "page API tokens."
        )
    response = _create_problem_response(request, 401, sentence)
    response["WWW-Authenticate"] = 'Bearer realm="refloat"'
    return response


@api.exception_handler(HttpError)
def _on_http_error(request: HttpRequest, error: Any) -> HttpResponse:
    # Ninja's own text for a body that is not JSON.
    texts = {"Cannot parse request body": "The request body is not valid JSON."}
    return _create_problem_response(request, error.status_code, texts.get(str(error), str(error)))


@api.exception_handler(RequestDataTooBig)
def _on_large_body(request: HttpRequest, _error: Any) -> HttpResponse:
    return _create_problem_response(
        request, 400, f"The request body has more than {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes."
    )


@api.exception_handler(Http404)
def _on_not_found(request: HttpRequest, error: Any) -> HttpResponse:
    return _create_problem_response(request, 404, str(error) or "This path was not found.")


@api.exception_handler(QueryError)
def _on_query_error(request: HttpRequest, error: Any) -> HttpResponse:
    return _create_problem_response(request, 400, str(error))


@api.exception_handler(MomentError)
def _on_moment_error(request: HttpRequest, error: Any) -> HttpResponse:
    return _create_problem_response(request, 400, str(error))


@api.exception_handler(ValidationError)
def _on_validation_error(request: HttpRequest, error: Any) -> HttpResponse:
    return _create_problem_response(request, 400, describe_validation_errors(error.errors))


@api.exception_handler(StateError)
def _on_state_error(request: HttpRequest, error: Any) -> HttpResponse:
    response = _create_problem_response(
        request, 503, f"The fleet data is not available now: {error}. Try again in 5 s."
    )
    response["Retry-After"] = "5"
    return response


@api.exception_handler(OperationalError)
def _on_database_error(request: HttpRequest, error: Any) -> HttpResponse:
    logger.error("%s %s: the database is not available", request.method, request.path, exc_info=error)
    response = _create_problem_response(request, 503, DATABASE_UNAVAILABLE)
    response["Retry-After"] = "5"
    return response


@api.exception_handler(ChangeRefusedError)
def _on_refusal(request: HttpRequest, error: Any) -> HttpResponse:
    body = {"detail": sentence_of(error), "problems": error.problems}
    status = 400 if error.problems else 409
    if isinstance(error, StaleRevisionError):
        path_arguments = request.resolver_match.kwargs if request.resolver_match else {}
        cluster, is_planned = path_arguments.get("cluster", DEFAULT_CLUSTER), "change_id" in path_arguments
        status = 412
        detail = change_responses.describe_stale(cluster, error, is_planned=is_planned)
        body |= {"detail": detail, "revision": error.revision}
    if isinstance(error, CapabilityMissingError):
        body |= {"capability": error.capability}
    refusals.record(request, str(body["detail"]))
    return api.create_response(request, body, status=status)


@api.exception_handler(ClusterError)
@api.exception_handler(SetupError)
def _on_setup_error(request: HttpRequest, error: Any) -> HttpResponse:
    refusals.record(request, str(error))
    return api.create_response(request, {"detail": str(error), "problems": error.problems}, status=400)


@api.exception_handler(ConfigurationError)
def _on_configuration_error(request: HttpRequest, error: Any) -> HttpResponse:
    problems: dict[str, str] = {}
    for problem in error.problems:
        place = "document" if problem.line is None else f"line {problem.line}"
        problems[place] = f"{problems[place]}; {problem.text}" if place in problems else problem.text
    detail = "The document cannot be imported."
    refusals.record(request, f"{detail} {error}")
    return api.create_response(request, {"detail": detail, "problems": problems}, status=400)


@api.exception_handler(ClusterChangedError)
@api.exception_handler(SetupChangedError)
def _on_setup_change(request: HttpRequest, error: Any) -> HttpResponse:
    return _create_problem_response(request, 409, f"{sentence_of(error)} Read it again.")


@api.exception_handler(change_responses.PreconditionFailed)
def _on_precondition_failed(request: HttpRequest, error: Any) -> HttpResponse:
    refusals.record(request, str(error))
    return api.create_response(request, {"detail": str(error), "revision": error.revision}, status=412)


@api.exception_handler(ReauthenticationRequired)
def _on_reauthentication_required(request: HttpRequest, error: Any) -> HttpResponse:
    return _create_problem_response(
        request, 403, "Confirm your identity again at /accounts/reauthenticate/, or send an API token."
    )


def _create_problem_response(request: HttpRequest, status: int, sentence: str) -> HttpResponse:
    refusals.record(request, sentence)
    return api.create_response(request, {"detail": sentence}, status=status)


urlpatterns, _app_name, _namespace = api.urls
