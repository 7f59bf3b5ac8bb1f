"""Errors of pydantic as sentences."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from dashboards.shared.api.validation_errors import describe_validation_errors
from tests.dashboards.changes.api.test_networking import PLAN, CallApi, call_api

__all__ = ["call_api"]


class _Document(BaseModel):
    count: Annotated[int, Field(ge=1, le=9)] = 1
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    name: Annotated[str, Field(min_length=2, max_length=3)] = "abc"
    is_on: bool = True
    moment: AwareDatetime | None = None
    state: Literal["open", "all"] = "open"
    labels: Annotated[dict[str, str], Field(default_factory=dict)]
    agents: Annotated[list[str], Field(default_factory=list)]


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"count": 0}, "count must be at least 1"),
        ({"count": 10}, "count must be at most 9"),
        ({"count": "x"}, "count must be a whole number"),
        ({"count": []}, "count must be a whole number"),
        ({"count": 1.5}, "count must be a whole number"),
        ({"share": 0}, "share must be greater than 0.0"),
        ({"share": 1}, "share must be less than 1.0"),
        ({"share": "x"}, "share must be a number"),
        ({"name": "a"}, "name must have at least 2 characters"),
        ({"name": "abcd"}, "name must have at most 3 characters"),
        ({"name": 5}, "name must be a string"),
        ({"is_on": "x"}, "is_on must be true or false"),
        ({"is_on": None}, "is_on must be true or false"),
        ({"moment": "x"}, "moment must be a date and time, such as 2026-08-01T12:00:00Z"),
        ({"moment": "2026-08-01T12:00:00"}, "moment must have a time zone, such as Z or +02:00"),
        ({"state": "shut"}, "state must be 'open' or 'all'"),
        ({"labels": []}, "labels must be a JSON object"),
        ({"labels": {"a": 1}}, "labels.a must be a string"),
        ({"agents": "x"}, "agents must be a list"),
        ({"count": 0, "name": 5}, "count must be at least 1; name must be a string"),
        ([], "the request body must be a JSON object"),
    ],
)
def test_errors_name_the_field_and_the_rule(document: Any, sentence: str) -> None:
    """Without words of Python or pydantic."""
    with pytest.raises(ValidationError) as caught:
        _Document.model_validate(document)
    # Ninja adds the source and the name of the argument.
    body_errors = [{**error, "loc": ("body", "body", *error["loc"])} for error in caught.value.errors()]
    assert describe_validation_errors(body_errors) == f"Invalid request: {sentence}."


def test_other_errors_keep_the_text_of_pydantic() -> None:
    """The name of a query parameter comes before it."""
    error = {"type": "url_parsing", "loc": ("query", "page"), "msg": "Input should be a URL"}
    assert describe_validation_errors([error]) == "Invalid request: page: Input should be a URL."


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ([], "the request body must be a JSON object"),
        (None, "the request body is missing"),
        ({"field": 1}, "unknown field 'field'; use fields, spec, revision"),
        ({"revision": 1}, "revision must be a string"),
    ],
)
def test_request_that_does_not_match_its_schema(call_api: CallApi, body: Any, sentence: str) -> None:
    """An unknown field is answered with the valid ones."""
    answer = call_api("POST", PLAN, body, If_Match="r1")
    assert (answer.status_code, answer.json()["detail"]) == (400, f"Invalid request: {sentence}.")
