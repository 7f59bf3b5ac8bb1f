from __future__ import annotations

import pytest
from django.contrib import messages
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.forms import CharField, Form, IntegerField
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from dashboards.shared import refusals


@pytest.fixture
def request_() -> HttpRequest:
    """A request that passed the middlewares which messages need."""
    request = RequestFactory().post("/")
    for middleware in (SessionMiddleware, MessageMiddleware):
        middleware(lambda _: HttpResponse()).process_request(request)  # type: ignore[attr-defined] # both have it
    return request


def test_reason_is_the_last_one(request_: HttpRequest) -> None:
    """None before it is refused."""
    assert refusals.reason_of(request_) == ""
    refusals.record(request_, "no permission")
    refusals.record(request_, "too old")
    assert refusals.reason_of(request_) == "too old"


def test_complaint_is_shown_as_well(request_: HttpRequest) -> None:
    """On the page that follows."""
    refusals.record_and_show(request_, "The note is empty.")
    assert refusals.reason_of(request_) == "The note is empty."
    assert [str(message) for message in messages.get_messages(request_)] == ["The note is empty."]


class _ReasonForm(Form):
    reason = CharField()
    count = IntegerField()


@pytest.mark.parametrize(
    ("values", "is_incomplete"),
    [({"count": "1"}, True), ({"reason": "x", "count": "y"}, False), ({"reason": "x", "count": "1"}, False)],
)
def test_form_that_lacks_only_required_texts_is_incomplete(
    values: dict[str, str], *, is_incomplete: bool
) -> None:
    request = HttpRequest()
    refusals.mark_if_incomplete(request, _ReasonForm(values))
    assert refusals.is_incomplete(request) is is_incomplete
