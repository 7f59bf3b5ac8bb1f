"""`/api/v1`: the fleet as JSON, for whoever has a token or a session. docs/api.md.

What reads the fleet stands here; the rest has routers of its own. A route of a cluster is written once: `per_cluster`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any

from allauth.core.exceptions import ReauthenticationRequired
from csp.constants import UNSAFE_INLINE
from csp.decorators import csp_update
from django.contrib.auth.models import User
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from ninja import NinjaAPI, Query
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation
from pydantic import Field
from typing_extensions import override

from dashboards.alerts import api as alerts
from dashboards.changes.api import changes, degrade, drain, networking, policies, reconnect
from dashboards.fleet import agent_query
from dashboards.fleet.agent_query import MAX_LIMIT, PAGE_SIZE, QueryError
from dashboards.fleet.api import answers, retire, schemas
from dashboards.shared import record_reader, refusals
from dashboards.shared.api import change_responses
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.parameters import Parameters
from dashboards.shared.api.per_cluster import PerCluster
from dashboards.shared.pages import sentence_of
from dashboards.shared.permissions import public, visible_clusters
from dashboards.shared.refusals import DATABASE_UNAVAILABLE
from fleet.changes import ChangeRefusedError, StaleRevisionError
from fleet.models.access import Permission
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.state import StateError

logger = logging.getLogger(__name__)


def _open_docs(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Let everybody read how the API works. Swagger, out of ninja's wheel, writes style attributes."""
    return public(csp_update({"style-src": [UNSAFE_INLINE]})(view))


#: Subjects of operations whose modules were renamed since; clients know these.
_SUBJECTS = {"retire": "retiring", "drain": "draining", "degrade": "degrading"}


class _Api(NinjaAPI):
    """NinjaAPI that renders its OpenAPI document once: rendering takes half a second, and anybody may request it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._documents: dict[str, OpenAPISchema] = {}

    @override
    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        """Return the document for a path prefix; routes do not change once the console serves."""
        prefix = self.get_root_path(path_params or {}) if path_prefix is None else path_prefix
        if prefix not in self._documents:
            self._documents[prefix] = super().get_openapi_schema(path_prefix=prefix)
        return self._documents[prefix]

    @override
    def get_openapi_operation_id(self, operation: Operation) -> str:
        """Name an operation after its subject and its function.

        Clients are generated from these names, so they do not follow the folder of a file.
        """
        module = operation.view_func.__module__.split(".")
        subject = module[-2] if module[-1] == "api" else module[-1].removeprefix("api_")
        subject = _SUBJECTS.get(subject, subject)
        return f"dashboards_api_{subject}_{operation.view_func.__name__}"


api = _Api(
    title="Refloat",
    version="1",
    description="Which agents are stranded, why, and whether they will come back by themselves.",
    urls_namespace="api-1",
    docs_decorator=_open_docs,
)

api.add_router("", networking.router)
api.add_router("", policies.router)
api.add_router("", reconnect.router)
api.add_router("", changes.router)
api.add_router("", alerts.router)
api.add_router("", retire.router)
api.add_router("", drain.router)
api.add_router("", degrade.router)

per_cluster = PerCluster(api)
_VIEW = ApiAccess(Permission.VIEW_FLEET)
_VIEW_ANY = ApiAccess(Permission.VIEW_FLEET, of_cluster=False)
#: What a route may answer besides its own.
_PROBLEMS = {frozenset({400, 401, 403, 404, 503}): schemas.Problem}


class AgentFilters(Parameters):
    """Parameters of the list of agents."""

    #: A state, or `-state` for all but it; more than once means either.
    state: Annotated[list[str], Field(default_factory=list)]
    #: Name or id of an instance.
    proxy: str = ""
    auth: str = ""
    #: The filter language of the Agents page.
    q: str = ""
    #: name, state or since; a minus before it turns the order round.
    sort: str = ""
    cursor: str | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = PAGE_SIZE


@per_cluster.get("/fleet/summary", auth=_VIEW, response={200: schemas.SummaryAnswer, **_PROBLEMS})
def summary(request: HttpRequest, cluster: str) -> Any:
    """Count the agents by state."""
    now = record_reader.current_time()
    return answers.summary(record_reader.reader().summary(change_responses.require_cluster(cluster), now), now)


@per_cluster.get("/agents", auth=_VIEW, response={200: schemas.AgentsAnswer, **_PROBLEMS})
def agents(request: HttpRequest, cluster: str, filters: Query[AgentFilters]) -> Any:
    """List agents, filtered, page by page."""
    now = record_reader.current_time()
    reader = record_reader.reader()
    table = reader.table(change_responses.require_cluster(cluster), now)
    query = agent_query.narrow(
        agent_query.parse(filters.q),
        states=filters.state,
        proxies=[filters.proxy] if filters.proxy else [],
        auths=[filters.auth] if filters.auth else [],
    )
    page = agent_query.page(table, query, cursor=filters.cursor, limit=filters.limit, sort=filters.sort)
    return schemas.AgentsAnswer(
        **answers.build_dated_fields(cluster, table.as_of, now, stale=table.stale),
        total=page.total,
        next=page.next_cursor,
        agents=answers.agents(
            (reader.agent(table, index) for index in page.indices), table.instances.values()
        ),
    )


@per_cluster.get("/agents/{agent_id}", auth=_VIEW, response={200: schemas.AgentAnswer, **_PROBLEMS})
def agent(request: HttpRequest, cluster: str, agent_id: str) -> Any:
    """Explain one agent: its verdict, and the evidence that it rests on."""
    explanation = record_reader.reader().explain(
        change_responses.require_cluster(cluster), agent_id, record_reader.current_time()
    )
    if explanation is None:
        raise HttpError(404, f"There is no agent {agent_id} in the cluster {cluster}.")
    return answers.explanation(cluster, explanation)


@per_cluster.get("/instances", auth=_VIEW, response={200: schemas.InstancesAnswer, **_PROBLEMS})
def instances(request: HttpRequest, cluster: str) -> Any:
    """List auths and proxies."""
    now = record_reader.current_time()
    reader = record_reader.reader()
    header = reader.header(change_responses.require_cluster(cluster), now)
    return schemas.InstancesAnswer(
        **answers.build_dated_fields(cluster, header.as_of, now, stale=header.stale),
        instances=[answers.instance(view) for view in reader.instances(cluster, now)],
    )


@api.get("/clusters", auth=_VIEW_ANY, response={200: schemas.ClustersAnswer, **_PROBLEMS})
def clusters(request: HttpRequest) -> Any:
    """List the clusters you may see."""
    user: User = request.auth  # type: ignore[attr-defined] # set by ninja to what ApiAccess answered
    return schemas.ClustersAnswer(clusters=list(visible_clusters(user)))


@api.exception_handler(AuthenticationError)
def _on_authentication_error(request: HttpRequest, _error: Any) -> HttpResponse:
    response = _create_problem_response(request, 401, "Sign in, or send a valid token: Authorization: Bearer rfl_...")
    response["WWW-Authenticate"] = 'Bearer realm="refloat"'
    return response


@api.exception_handler(HttpError)
def _on_http_error(request: HttpRequest, error: Any) -> HttpResponse:
    return _create_problem_response(request, error.status_code, str(error))


@api.exception_handler(Http404)
def _on_not_found(request: HttpRequest, error: Any) -> HttpResponse:
    return _create_problem_response(request, 404, str(error) or "There is nothing at this address.")


@api.exception_handler(QueryError)
def _on_query_error(request: HttpRequest, error: Any) -> HttpResponse:
    return _create_problem_response(request, 400, str(error))


@api.exception_handler(ValidationError)
def _on_validation_error(request: HttpRequest, error: Any) -> HttpResponse:
    details = "; ".join(
        f"{'.'.join(str(part) for part in problem['loc'][1:])}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors
    )
    return _create_problem_response(request, 400, f"The parameters cannot be used: {details}.")


@api.exception_handler(StateError)
def _on_state_error(request: HttpRequest, error: Any) -> HttpResponse:
    response = _create_problem_response(request, 503, f"The record cannot be read now: {error}.")
    response["Retry-After"] = "5"
    return response


@api.exception_handler(OperationalError)
def _on_database_error(request: HttpRequest, error: Any) -> HttpResponse:
    logger.error("%s %s: the database cannot be used", request.method, request.path, exc_info=error)
    response = _create_problem_response(request, 503, DATABASE_UNAVAILABLE)
    response["Retry-After"] = "5"
    return response


@api.exception_handler(ChangeRefusedError)
def _on_refusal(request: HttpRequest, error: Any) -> HttpResponse:
    body = {"detail": sentence_of(error), "problems": error.problems}
    status = 400 if error.problems else 409
    if isinstance(error, StaleRevisionError):
        match = request.resolver_match
        cluster = match.kwargs.get("cluster", DEFAULT_CLUSTER) if match else DEFAULT_CLUSTER
        status = 412
        body |= {"detail": change_responses.describe_stale(cluster, error), "revision": error.revision}
    refusals.record(request, str(body["detail"]))
    return api.create_response(request, body, status=status)


@api.exception_handler(change_responses.PreconditionFailed)
def _on_precondition_failed(request: HttpRequest, error: Any) -> HttpResponse:
    refusals.record(request, str(error))
    return api.create_response(request, {"detail": str(error), "revision": error.revision}, status=412)


@api.exception_handler(ReauthenticationRequired)
def _on_reauthentication_required(request: HttpRequest, error: Any) -> HttpResponse:
    return _create_problem_response(request, 403, "Prove again who you are at /accounts/reauthenticate/, or send a token.")


def _create_problem_response(request: HttpRequest, status: int, sentence: str) -> HttpResponse:
    refusals.record(request, sentence)
    return api.create_response(request, {"detail": sentence}, status=status)
