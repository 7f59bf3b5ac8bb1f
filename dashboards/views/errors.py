"""Pages for what went wrong."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """403 with the reason. Template `403.html`: `reason`."""
    return render(request, "403.html", {"reason": str(exception)}, status=403)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404 with the reason when it is a sentence of ours. Template `404.html`: `reason`."""
    said = exception.args[0] if exception.args else ""
    if request.path.startswith("/api/"):
        return JsonResponse({"detail": "There is nothing at this address."}, status=404)
    return render(request, "404.html", {"reason": said if isinstance(said, str) else ""}, status=404)
