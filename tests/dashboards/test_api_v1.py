from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from dashboards.api_v1 import api
from fleet import __version__
from fleet.models.access import ClusterLimit, Permission
from fleet.models.clusters import Cluster, ensure_default_cluster
from fleet.models.drains import Drain
from fleet.models.tokens import create_token
from fleet.monitoring.agent_report import AgentReportResponse, parse_agent_report
from fleet.vocabulary.verdicts import State
from tests.dashboards.conftest import MakeUser
from tests.fakes.history_rows import create_agent_change
from tests.fakes.reader import FakeReader


@pytest.fixture
def bearer(person: MakeUser) -> dict[str, str]:
    """Headers of a viewer's token."""
    _token, secret = create_token(
        person("viewer"), "test", [Permission.VIEW_FLEET], lifetime=timedelta(days=1), now=timezone.now()
    )
    return {"Authorization": f"Bearer {secret}"}


def _get(client: Client, path: str, headers: dict[str, str], status: int = 200) -> Any:
    answer = client.get(f"/api/v1/{path}", headers=headers)
    assert answer.status_code == status, answer.content
    return answer.json()


def test_summary_has_every_state(client: Client, bearer: dict[str, str], fake_reader: FakeReader) -> None:
    """Counts name every verdict, also those with none; the age is told."""
    summary = _get(client, "fleet/summary", bearer)
    assert set(summary["counts"]) == {state.slug for state in State}
    assert summary["counts"]["at_risk"] == 1
    assert summary["agent_count"] == 4
    assert summary["instance_count"] == 4
    assert 900 <= summary["age_ms"] < 5000
    assert datetime.fromisoformat(summary["as_of"]).timestamp() == pytest.approx(fake_reader.as_of, abs=0.01)
    assert summary["is_stale"] is False
    assert summary["interval_ms"] == 1000


def test_summary_before_the_first_round(
    client: Client, bearer: dict[str, str], fake_reader: FakeReader
) -> None:
    """No round yet: null, stale, and everything unknown."""
    fake_reader.as_of = None
    summary = _get(client, "fleet/summary", bearer)
    assert (summary["as_of"], summary["age_ms"], summary["is_stale"]) == (None, None, True)
    assert summary["counts"]["unknown"] == 4


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["agent-0", "agent-1", "agent-2", "agent-3"]),
        ("state=stranded", ["agent-2"]),
        ("state=stranded&state=at_risk", ["agent-2", "agent-3"]),
        ("state=-healthy", ["agent-2", "agent-3"]),
        ("proxy=proxy-1", ["agent-0", "agent-2"]),
        ("auth=auth-id-2", ["agent-1", "agent-3"]),
        ("q=AGENT-3", ["agent-3"]),
        ("q=state:healthy+-proxy:proxy-1", ["agent-1"]),
        ("proxy=nobody", []),
    ],
)
def test_agents_filtered(
    client: Client, bearer: dict[str, str], fake_reader: FakeReader, query: str, names: list[str]
) -> None:
    """Each filter finds exactly its agents."""
    listing = _get(client, f"agents?{query}", bearer)
    assert [agent["name"] for agent in listing["agents"]] == names
    assert listing["total_count"] == len(names)


def test_agents_page_by_page(client: Client, bearer: dict[str, str], fake_reader: FakeReader) -> None:
    """Following `next` sees every agent once, and ends."""
    fake_reader.states = [State.HEALTHY] * 7
    agent_ids: list[str] = []
    cursor = ""
    while True:
        listing = _get(client, f"agents?limit=3{cursor}", bearer)
        agent_ids += [agent["id"] for agent in listing["agents"]]
        if listing["next"] is None:
            break
        cursor = f"&cursor={listing['next']}"
    assert agent_ids == [f"id-{index}" for index in range(7)]


@pytest.mark.parametrize(
    "query",
    [
        *("state=happy", "state=", "state=%00", "q=color:red", "q='", "q=" + "a%20" * 21),
        *("limit=0", "limit=1001", "limit=", "limit=1e3", "limit=%00", "limit=" + "9" * 5000),
        *("cursor=zzz", "cursor=", "cursor=%00", "cursor=e0.1", "cursor=e1.-1", "cursor=e1." + "9" * 5000),
    ],
    ids=lambda query: query[:20],
)
def test_agents_wrong_parameter_is_a_sentence(
    client: Client, bearer: dict[str, str], fake_reader: FakeReader, query: str
) -> None:
    """400 with one sentence that ends in a full stop."""
    assert _get(client, f"agents?{query}", bearer, 400)["detail"].endswith(".")


def test_agent_is_explained(client: Client, bearer: dict[str, str], fake_reader: FakeReader) -> None:
    """One agent carries its verdict, its evidence, and the instances that these name."""
    agent = _get(client, "agents/id-2", bearer)
    assert agent["state"] == "stranded"
    assert agent["reason"] == "no-tunnel"
    assert agent["evidence"]["heartbeat"]["mode"] == "reconnect"
    (tunnel,) = agent["evidence"]["tunnels"]
    assert (tunnel["id"], tunnel["name"]) == ("proxy-id-1", "proxy-1")
    assert timezone.now() - datetime.fromisoformat(tunnel["opened_at"]) >= timedelta(seconds=60)
    assert len(agent["instances"]) == 4
    assert agent["report"] is None
    assert _get(client, "agents/agent-2", bearer, 404)["detail"] == (
        "Agent agent-2 was not found in cluster default: paths take ids. GET /api/v1/agents lists ids and names."
    )


def test_history_of_an_agent(client: Client, bearer: dict[str, str], fake_reader: FakeReader) -> None:
    """By pages, also when the record does not have the agent any more; an unknown agent and a time without zone are
    refused."""
    for second in range(3):
        create_agent_change("id-gone", 1_700_000_000.0 + second, State.HEALTHY, State.STRANDED)
    history = _get(client, "agents/id-gone/history?limit=2", bearer)
    assert [change["at"] for change in history["changes"]] == ["2023-11-14T22:13:22Z", "2023-11-14T22:13:21Z"]
    rest = _get(client, f"agents/id-gone/history?before={history['next']}", bearer)
    assert ([change["at"] for change in rest["changes"]], rest["next"]) == (["2023-11-14T22:13:20Z"], None)
    assert "was not found" in _get(client, "agents/nobody/history", bearer, 404)["detail"]
    assert _get(client, "agents/id-gone/history?before=2023-11-14T22:13:20", bearer, 400)["detail"].endswith(
        "."
    )


def test_agent_report_is_shown(client: Client, bearer: dict[str, str], fake_reader: FakeReader) -> None:
    """The agent's report, with the names of its proxies."""
    report = parse_agent_report(
        '{"agent_id": "id-2", "version": "9", "tracker": {"claimed_proxies": ["proxy-id-1"]},'
        ' "auth_reconnect": {"first_wait_ms": 250, "every_ms": 3600000}}'
    )
    fake_reader.answer = AgentReportResponse(1_700_000_000.0, 2, report)
    agent_report = _get(client, "agents/id-2", bearer)["report"]
    assert agent_report["requested_at"] == "2023-11-14T22:13:20Z"
    assert agent_report["via_proxy"] == {"id": "proxy-id-1", "name": "proxy-1"}
    assert (agent_report["version"], agent_report["error"], agent_report["desired_count"]) == ("9", "", 0)
    (proxy,) = agent_report["proxies"]
    assert (proxy["name"], proxy["is_claimed"], proxy["expires_at"]) == ("proxy-1", True, None)
    assert agent_report["auth_reconnect"] == {
        "initial_delay_seconds": 0.25, "drain_timeout_seconds": None, "interval_seconds": 3600,
    }  # fmt: skip


@pytest.mark.parametrize("odd", ["%00", "%ED%A0%80", "%F0%9F%9A%A2", "a%2Fb", "default%0A", "x" * 5000])
def test_odd_names_are_not_found(
    client: Client, bearer: dict[str, str], fake_reader: FakeReader, odd: str
) -> None:
    """NUL, half a surrogate pair, a ship, a slash, a line break, thousands of letters: 404 with a sentence."""
    for path in (f"agents/{odd}", f"clusters/{odd}/agents", f"clusters/{odd}/agents/{odd}"):
        assert _get(client, path, bearer, 404)["detail"].endswith(".")


def test_fault_of_ours_is_json(
    client: Client, bearer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error is 500, as JSON with a message."""
    client.raise_request_exception = False
    monkeypatch.setattr("dashboards.shared.record_reader.reader", lambda: None)
    assert _get(client, "instances", bearer, 500)["detail"].endswith(".")


def test_instances(client: Client, bearer: dict[str, str], fake_reader: FakeReader) -> None:
    """Auths and proxies with their state and their agents."""
    listing = _get(client, "instances", bearer)
    assert {instance["name"] for instance in listing["instances"]} == {
        "auth-1",
        "auth-2",
        "proxy-1",
        "proxy-2",
    }
    assert listing["instances"][0]["serving"] == "SERVING"
    path = [
        (instance["cause"], instance["heartbeat_auth"], instance["proxies"])
        for instance in listing["instances"]
    ]
    assert path == [("", "", [])] * 4


def test_requested_drain_is_listed_before_it_is_reported(
    client: Client, bearer: dict[str, str], fake_reader: FakeReader
) -> None:
    """A frozen instance cannot confirm it; the instances of an agent have it, too."""
    ensure_default_cluster()
    for instance_id, is_drained in (("proxy-id-1", True), ("proxy-id-2", False)):
        Drain.objects.create(
            cluster_id="default", instance=instance_id, name=instance_id, is_drained=is_drained
        )
    for path in ("instances", "agents/id-2"):
        instances = _get(client, path, bearer)["instances"]
        assert {instance["id"] for instance in instances if instance["is_drain_requested"]} == {"proxy-id-1"}
        assert {instance["drain"] for instance in instances} == {None}


def test_generation_and_reconnect_mode_are_listed(
    client: Client, bearer: dict[str, str], fake_reader: FakeReader
) -> None:
    """Of each proxy its group and generation; of each agent those of its proxies, and the policy that it runs with."""
    agents = _get(client, "agents", bearer)["agents"]
    assert [agent["mode"] for agent in agents] == ["unknown", "reconnect"] * 2
    assert (agents[0]["health_check"], agents[0]["policy_read_at"]) == (None, None)
    assert agents[1]["health_check"] is True
    assert datetime.fromisoformat(agents[1]["policy_read_at"]).timestamp() == pytest.approx(
        fake_reader.as_of, abs=0.01
    )
    agents_rows = [
        {"id": "proxy-id-1", "name": "proxy-1", "group": "", "generation": 0},
        {"id": "proxy-id-2", "name": "proxy-2", "group": "blue", "generation": 3},
    ]
    assert [agent["proxies"] for agent in agents] == [[agents_rows[0]], [agents_rows[1]]] * 2
    instances = _get(client, "instances", bearer)["instances"]
    assert [(instance["name"], instance["group"], instance["generation"]) for instance in instances] == [
        ("auth-1", "", 0),
        ("auth-2", "", 0),
        ("proxy-1", "", 0),
        ("proxy-2", "blue", 3),
    ]
    assert {instance["region"] for instance in instances} == {"eu-1"}


def test_version(client: Client, bearer: dict[str, str]) -> None:
    """That of the program, for whoever may see the fleet."""
    assert _get(client, "version", bearer) == {"version": __version__}
    assert client.get("/api/v1/version").status_code == 401


def test_clusters_and_their_routes(client: Client, bearer: dict[str, str], fake_reader: FakeReader) -> None:
    """The default cluster has two paths; an unknown one is 404."""
    assert _get(client, "clusters", bearer) == {"clusters": ["default"]}
    assert _get(client, "clusters/default/fleet/summary", bearer)["agent_count"] == 4
    assert _get(client, "clusters/default/agents/id-1", bearer)["name"] == "agent-1"
    _get(client, "clusters/mars/instances", bearer, 404)


def test_cluster_limit_holds(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """A user limited to one cluster is refused the other, by name and by default."""
    Cluster.objects.create(id="eu", name="Europe")
    user = person("admin")
    ClusterLimit.objects.create(user=user, cluster="eu")
    client.force_login(user)
    for path, cluster in (("fleet/summary", "default"), ("clusters/mars/fleet/summary", "mars")):
        detail = _get(client, path, {}, 403)["detail"]
        assert detail == f"Not allowed: you have no access to cluster {cluster}."
    assert client.get("/api/v1/clusters/eu/fleet/summary").status_code == 200


def test_refusals_are_sentences(client: Client, person: MakeUser, fake_reader: FakeReader) -> None:
    """401 names the way in; a token without the scope and a person without the role get 403."""
    answer = client.get("/api/v1/fleet/summary")
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Bearer")
    assert "token" in answer.json()["detail"]
    refusal = _get(client, "fleet/summary", {"Authorization": "Bearer rfl_no_such"}, 401)
    assert refusal["detail"].startswith("The API token is wrong, expired or revoked")
    refusal = _get(client, "fleet/summary", {"Authorization": "Basic eA=="}, 401)
    assert refusal["detail"].startswith("Not signed in.")
    _token, secret = create_token(
        person("viewer"), "metrics", [Permission.VIEW_METRICS], lifetime=None, now=timezone.now()
    )
    assert "scope" in _get(client, "fleet/summary", {"Authorization": f"Bearer {secret}"}, 403)["detail"]
    client.force_login(person(""))
    assert "needs the role" in _get(client, "fleet/summary", {}, 403)["detail"]


def test_token_of_a_user_without_a_role_is_refused(
    client: Client, person: MakeUser, fake_reader: FakeReader
) -> None:
    """A token never outlives its owner's permissions."""
    user = person("viewer")
    _token, secret = create_token(user, "old", [Permission.VIEW_FLEET], lifetime=None, now=timezone.now())
    user.groups.clear()
    _get(client, "fleet/summary", {"Authorization": f"Bearer {secret}"}, 403)


def test_record_away_is_503(client: Client, bearer: dict[str, str], fake_reader: FakeReader) -> None:
    """Redis lost: a sentence, and when to ask again."""
    fake_reader.down = True
    answer = client.get("/api/v1/agents", headers=bearer)
    assert answer.status_code == 503
    assert answer["Retry-After"] == "5"
    assert "Redis does not answer" in answer.json()["detail"]


def test_unknown_route_is_json(client: Client, db: None) -> None:
    """A client of the API never gets a page."""
    answer = client.get("/api/v1/nothing")
    assert answer.status_code == 404
    assert answer.json()["detail"]


def test_openapi_document(client: Client, person: MakeUser) -> None:
    """It names every route and the bearer scheme; whoever is signed in may read it."""
    client.force_login(person("viewer"))
    document = client.get("/api/v1/openapi.json").json()
    assert "/api/v1/clusters/{cluster}/agents/{agent_id}" in document["paths"]
    schemes = document["components"]["securitySchemes"].values()
    assert {"type": "http", "scheme": "bearer"} in schemes


def test_openapi_document_describes_operations_and_fields() -> None:
    """A summary without a full stop, a description that ends in one, and a description of every field."""
    document = api.get_openapi_schema(path_prefix="/api/v1/")
    for path in document["paths"].values():
        for operation in path.values():
            assert not operation["summary"].endswith(".")
            assert operation["description"].endswith(".")
    fields = {
        (name, field)
        for name, schema in document["components"]["schemas"].items()
        for field, field_schema in schema.get("properties", {}).items()
        if "description" not in field_schema
    }
    assert not fields


def test_openapi_document_is_rendered_once() -> None:
    """Anybody may request it without a sign-in, and rendering it costs half a second of CPU."""
    document = api.get_openapi_schema(path_prefix="/api/v1/")
    assert api.get_openapi_schema(path_prefix="/api/v1/") is document
    assert "/agents" in api.get_openapi_schema(path_prefix="/")["paths"]


def test_summary_costs_few_queries(
    client: Client,
    bearer: dict[str, str],
    fake_reader: FakeReader,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    """Token, two of permissions, the limits, the open incidents, the changes and the recent incidents, whatever the
    fleet's size; once a minute, five to keep its last use."""
    with django_assert_max_num_queries(13):
        _get(client, "fleet/summary", bearer)
    with django_assert_max_num_queries(7):
        _get(client, "fleet/summary", bearer)


def test_names_of_operations_do_not_follow_files() -> None:
    """Clients are generated from them."""
    paths = api.get_openapi_schema(path_prefix="/api/v1/")["paths"]
    names = {operation["operationId"] for path in paths.values() for operation in path.values()}
    assert len(names) == sum(len(path) for path in paths.values())
    assert {
        "list_agents",
        "list_incidents_of_cluster",
        "confirm_change",
        "plan_networking_change",
        "retire_agent",
    } <= names


def test_body_that_is_too_large_is_a_problem_in_json(client: Client, person: MakeUser) -> None:
    """Not Django's page for browsers."""
    scopes = [Permission.VIEW_FLEET, Permission.CHANGE_CONFIG]
    _, secret = create_token(person("admin"), "test", scopes, lifetime=timedelta(days=1), now=timezone.now())
    bearer = {"Authorization": f"Bearer {secret}"}
    body = '{"document": "' + "x" * 3_000_000 + '"}'
    response = client.post("/api/v1/alerting/plan", body, content_type="application/json", headers=bearer)
    assert response.status_code == 400
    assert response.json()["detail"] == "The request body has more than 2,621,440 bytes."
