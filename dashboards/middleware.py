"""Middleware: headers of every response, JSON errors of the API, and the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest, HttpResponseBase, JsonResponse
from django.utils.decorators import sync_and_async_middleware

from dashboards.shared import request_log
from dashboards.shared.request_actor import REQUEST_ID_HEADER, request_id_of
from fleet.audit import collect_audit_entry_ids

SyncHandler = Callable[[HttpRequest], HttpResponseBase]
AsyncHandler = Callable[[HttpRequest], Awaitable[HttpResponseBase]]

_NO_STORE = "private, no-store"
#: Header of a request from a dialog, and of its response: where a redirect leads. A fetch would follow the redirect
#: itself, and take the messages that the next page must show. dashboards/static/dashboards/js/dialogs.js.
DIALOG_HEADER = "X-Refloat-Dialog"
DIALOG_LOCATION_HEADER = "X-Refloat-Location"
_REDIRECT_STATUSES = (301, 302, 303)


@sync_and_async_middleware
def complete_responses(get_response: Any) -> SyncHandler | AsyncHandler:
    """Respond to a wrong method below /api/ with an error in JSON, and set headers of every response.

    The exception handlers of the API do not get this error: ninja refuses a method before it finds the route.
    """
    if iscoroutinefunction(get_response):
        get_response_async = cast("AsyncHandler", get_response)

        async def async_middleware(request: HttpRequest) -> HttpResponseBase:
            is_dialog = _is_dialog(request)
            return _complete_response(request, await get_response_async(request), is_dialog=is_dialog)

        return async_middleware
    get_response_sync = cast("SyncHandler", get_response)

    def sync_middleware(request: HttpRequest) -> HttpResponseBase:
        is_dialog = _is_dialog(request)
        return _complete_response(request, get_response_sync(request), is_dialog=is_dialog)

    return sync_middleware


@sync_and_async_middleware
def log_attempts(get_response: Any) -> SyncHandler | AsyncHandler:
    """Write an entry to the audit log for every attempt to change something."""
    if iscoroutinefunction(get_response):
        get_response_async = cast("AsyncHandler", get_response)

        async def async_middleware(request: HttpRequest) -> HttpResponseBase:
            with collect_audit_entry_ids() as recorded_ids:
                response = await get_response_async(request)
            if request.method not in request_log.SAFE_METHODS:
                await sync_to_async(request_log.record_attempt)(request, response, len(recorded_ids))
            return response

        return async_middleware
    get_response_sync = cast("SyncHandler", get_response)

    def sync_middleware(request: HttpRequest) -> HttpResponseBase:
        with collect_audit_entry_ids() as recorded_ids:
            response = get_response_sync(request)
        request_log.record_attempt(request, response, len(recorded_ids))
        return response

    return sync_middleware


def _is_dialog(request: HttpRequest) -> bool:
    """Return whether a dialog sent the request.

    Read before the view runs: after a reauthentication, allauth gives the request the headers of the one it repeats.
    """
    return DIALOG_HEADER in request.headers


def _complete_response(
    request: HttpRequest, response: HttpResponseBase, *, is_dialog: bool
) -> HttpResponseBase:
    # With this id, users can report a request, and find it in the audit log.
    response.headers[REQUEST_ID_HEADER] = request_id_of(request)
    # Pages show names, incidents and addresses: browsers and proxies must not store them, unless a view allows it.
    response.headers.setdefault("Cache-Control", _NO_STORE)
    if is_dialog and response.status_code in _REDIRECT_STATUSES:
        response.status_code = 204
        response.headers[DIALOG_LOCATION_HEADER] = response.headers["Location"]
        del response.headers["Location"]
    if response.status_code != 405 or not request.path.startswith("/api/"):
        return response
    allowed_methods = response.headers.get("Allow", "")
    sentence = f"{request.method} is not allowed for this URL. Allowed: {allowed_methods}."
    headers = {name: response.headers[name] for name in (REQUEST_ID_HEADER, "Cache-Control")}
    return JsonResponse({"detail": sentence}, status=405, headers={"Allow": allowed_methods, **headers})
