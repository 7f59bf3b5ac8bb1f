"""Both routes of a view: their paths, their names, and the cluster that the view gets."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Query, Router, Schema
from ninja.testing import TestClient

from dashboards.api_v1 import api
from dashboards.shared.api.per_cluster import PerCluster


class Filters(Schema):
    """Parameters of the routes."""

    limit: int = 7


router = Router()
per_cluster = PerCluster(router)


@per_cluster.get("/things/{int:number}")
def read_thing(request: HttpRequest, cluster: str, number: int, filters: Query[Filters]) -> Any:
    """Return the arguments of the request."""
    return {"cluster": cluster, "number": number, "limit": filters.limit}


@per_cluster.post("/things/{int:number}")
def make_thing(request: HttpRequest, cluster: str, number: int) -> Any:
    """Return the cluster of the new object."""
    return {"cluster": cluster, "number": number}


client = TestClient(router)


def test_short_path_means_the_default_cluster() -> None:
    """The view gets `default`, and the parameters of path and query."""
    assert client.get("/things/3?limit=2").json() == {"cluster": "default", "number": 3, "limit": 2}
    assert client.post("/things/3").json() == {"cluster": "default", "number": 3}


def test_short_path_takes_no_cluster_behind_the_question_mark() -> None:
    """Access to a cluster is checked by the path."""
    assert client.get("/things/3?cluster=other").json()["cluster"] == "default"


def test_long_path_names_the_cluster() -> None:
    """The view gets the cluster of the path."""
    assert client.get("/clusters/east/things/3").json() == {"cluster": "east", "number": 3, "limit": 7}
    assert client.post("/clusters/east/things/3").json() == {"cluster": "east", "number": 3}


def test_routes_have_names_of_their_own() -> None:
    """What ninja names operations after; tags tell the two sets apart."""
    names = {
        (path, operation.view_func.__name__, tuple(operation.tags or ()))
        for path, view in router.path_operations.items()
        for operation in view.operations
    }
    short, cluster_path = "/things/{int:number}", "/clusters/{cluster}/things/{int:number}"
    assert names == {
        (short, "read_thing", ("default cluster",)),
        (short, "make_thing", ("default cluster",)),
        (cluster_path, "read_thing_of_cluster", ("any cluster",)),
        (cluster_path, "make_thing_of_cluster", ("any cluster",)),
    }


def test_every_api_path_has_a_cluster_variant() -> None:
    """But the clusters themselves, the users and the version; both ask for the same, beside the cluster."""
    paths = api.get_openapi_schema(path_prefix="/")["paths"]
    installation_paths = {"/clusters", "/clusters/{cluster}", "/version"} | {
        f"/clusters/{{cluster}}/{action}" for action in ("pause", "resume", "delete", "test")
    }
    short = {
        path: operations
        for path, operations in paths.items()
        if not path.startswith(("/clusters", "/users")) and path not in installation_paths
    }
    user_paths = {path for path in paths if path.startswith("/users")}
    twin_paths = {f"/clusters/{{cluster}}{path}" for path in short}
    assert set(paths) == {*short, *twin_paths, *user_paths, *installation_paths}
    for path, methods in short.items():
        twin = paths[f"/clusters/{{cluster}}{path}"]
        assert set(methods) == set(twin)
        for method, route in methods.items():
            names = [parameter["name"] for parameter in twin[method]["parameters"]]
            assert names[0] == "cluster"
            assert names[1:] == [parameter["name"] for parameter in route["parameters"]]
            assert route["security"] == twin[method]["security"]
