"""What every answer passes on its way out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils.decorators import sync_and_async_middleware

from dashboards.shared import request_log
from dashboards.shared.request_actor import REQUEST_ID_HEADER, request_id_of
from fleet.audit import counting

Sync = Callable[[HttpRequest], HttpResponseBase]
Async = Callable[[HttpRequest], Awaitable[HttpResponseBase]]

_NOT_KEPT = "private, no-store"


@sync_and_async_middleware
def api_problems(get_response: Any) -> Sync | Async:
    """Answer a wrong method below /api/ with a sentence in JSON, as the API answers all that is wrong.

    The API's own handlers are not asked: ninja refuses a method before it knows whose route it is.
    """
    if iscoroutinefunction(get_response):
        answer_later = cast("Async", get_response)

        async def later(request: HttpRequest) -> HttpResponseBase:
            return _with_words(request, await answer_later(request))

        return later
    answer = cast("Sync", get_response)

    def now(request: HttpRequest) -> HttpResponseBase:
        return _with_words(request, answer(request))

    return now


@sync_and_async_middleware
def log_attempts(get_response: Any) -> Sync | Async:
    """See that every attempt to change something has its row in the log."""
    if iscoroutinefunction(get_response):
        answer_later = cast("Async", get_response)

        async def later(request: HttpRequest) -> HttpResponseBase:
            with counting() as written:
                answer = await answer_later(request)
            if request.method not in request_log.READS:
                await sync_to_async(request_log.see)(request, answer, len(written))
            return answer

        return later
    answer = cast("Sync", get_response)

    def now(request: HttpRequest) -> HttpResponseBase:
        with counting() as written:
            given = answer(request)
        request_log.see(request, given, len(written))
        return given

    return now


def _with_words(request: HttpRequest, answer: HttpResponseBase) -> HttpResponseBase:
    # So that somebody can name a request in a report, and find it in the log of changes.
    answer.headers[REQUEST_ID_HEADER] = request_id_of(request)
    # Pages show names, incidents and addresses: no browser or proxy keeps a copy, unless a view says what it may.
    answer.headers.setdefault("Cache-Control", _NOT_KEPT)
    if answer.status_code != 405 or not request.path.startswith("/api/"):
        return answer
    allowed = answer.headers.get("Allow", "")
    sentence = f"{request.method} is not allowed at this address, only {allowed}."
    headers = {name: answer.headers[name] for name in (REQUEST_ID_HEADER, "Cache-Control")}
    return JsonResponse({"detail": sentence}, status=405, headers={"Allow": allowed, **headers})
