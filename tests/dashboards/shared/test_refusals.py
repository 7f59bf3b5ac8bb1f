from __future__ import annotations

import pytest
from django.contrib import messages
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
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
