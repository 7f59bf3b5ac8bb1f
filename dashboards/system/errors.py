"""Error pages, and JSON errors below /api/."""

from __future__ import annotations

import sys

from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.defaults import server_error

from dashboards.shared import refusals
from dashboards.shared.refusals import DATABASE_UNAVAILABLE


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return a 403 page with the reason. Template `403.html`: `reason`."""
    return render(request, "403.html", {"reason": str(exception)}, status=403)


def form_refused(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Return a 403 page for a form without a valid CSRF token; `reason` is Django's.

    Template `403_form.html`: `sentence`, `reason`.
    """
    refusals.record(request, f"CSRF: {reason}")
    sentence = "The form is out of date. Reload the page and send the form again."
    if request.path.startswith("/api/"):
        return JsonResponse({"detail": sentence}, status=403)
    return render(request, "403_form.html", {"sentence": sentence, "reason": reason}, status=403)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return a 404 page, with the reason if a view gave one. Template `404.html`: `reason`."""
    reason = exception.args[0] if exception.args else ""
    if request.path.startswith("/api/"):
        return JsonResponse({"detail": "This path was not found."}, status=404)
    return render(request, "404.html", {"reason": reason if isinstance(reason, str) else ""}, status=404)


def internal_error(request: HttpRequest) -> HttpResponse:
    """Return a 500 page for an internal error; the log has the traceback. Template `500.html`, without a context.

    503 if the database is unavailable. Template `503_database.html`, without a context.
    """
    # Django calls this while it handles the exception.
    if isinstance(sys.exception(), OperationalError):
        return _respond_database_unavailable(request)
    if request.path.startswith("/api/"):
        return JsonResponse({"detail": "Internal error: the console log has the details."}, status=500)
    return server_error(request)


def _respond_database_unavailable(request: HttpRequest) -> HttpResponse:
    if request.path.startswith("/api/"):
        response: HttpResponse = JsonResponse({"detail": DATABASE_UNAVAILABLE}, status=503)
    else:
        response = server_error(request, template_name="503_database.html")
        response.status_code = 503
    response["Retry-After"] = "5"
    return response
