"""Operations share the models of their responses."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema, Status
from ninja.operation import Operation
from ninja.testing import TestClient

from dashboards.api_v1 import api
from dashboards.shared.api.response_models import share_response_models


class Agent(Schema):
    """A response."""

    name: str


class Refusal(Schema):
    """A response with another status."""

    detail: str


def _operations(router: Router) -> list[Operation]:
    return [operation for view in router.path_operations.values() for operation in view.operations]


def test_one_model_for_each_type() -> None:
    """Operations and statuses of the same type have the same model; each answers with what it declares."""
    router = Router()

    @router.get("/first", response={200: Agent, (404, 409): Refusal})
    def read_first(request: HttpRequest) -> Any:
        return {"name": "first", "secret": "x"}

    @router.get("/second", response={200: list[Agent], 404: Refusal, 204: None})
    def read_second(request: HttpRequest) -> Any:
        return Status(404, {"detail": "no second"})

    first, second = (operation.response_models for operation in _operations(router))
    assert first[404] is first[409] is second[404]
    assert len({first[200], first[404], second[200]}) == 3
    assert second[204] is None
    client = TestClient(router)
    assert client.get("/first").json() == {"name": "first"}
    answer = client.get("/second")
    assert (answer.status_code, answer.json()) == (404, {"detail": "no second"})


def test_no_route_of_the_api_was_registered_before() -> None:
    """The same type never has two models, in whichever order modules are imported."""
    models_by_type: dict[int, set[Any]] = defaultdict(set)
    for _, router in api._routers:
        for operation in _operations(router):
            for model in operation.response_models.values():
                if isinstance(model, type):
                    models_by_type[id(model.model_fields["response"].annotation)].add(model)
    assert len(models_by_type) > 20
    assert {len(models) for models in models_by_type.values()} == {1}


def test_a_second_call_changes_nothing() -> None:
    """Models that were shared stay shared."""
    before = Operation._create_response_model
    share_response_models()
    assert Operation._create_response_model is before
