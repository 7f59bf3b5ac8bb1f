"""Helpers of page views: URL prefix of a cluster, the signed-in user, and the 503 page."""

from __future__ import annotations

import functools
from urllib.parse import quote

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from dashboards.shared.permissions import P, View
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.monitoring.state import StateError


def url_prefix_of(cluster: str) -> str:
    """Return the URL prefix of the pages of a cluster; empty for the default cluster."""
    return "" if cluster == DEFAULT_CLUSTER else f"/c/{cluster}"


def instance_path_of(id_or_name: str) -> str:
    """Return the path of the page of an auth or proxy below the prefix of its cluster; empty if no path can have it.

    The page of a name redirects to that of the id.
    """
    if not id_or_name.strip(".") or "/" in id_or_name:
        return ""
    return f"/instances/{quote(id_or_name, safe='')}/"


def edge_instance_path_of(name: str) -> str:
    """Return the path of the page of a gateway or tunnel server below the prefix of its cluster."""
    return f"/edge-instances/{quote(name, safe='')}/"


def sentence_of(error: Exception) -> str:
    """Return the message of an error as a sentence."""
    text = str(error)
    if text.partition(":")[0] in getattr(error, "problems", {}):
        return f"{text}."  # begins with the key of a field
    return f"{text[:1].upper()}{text[1:]}."


def signed_in_user_of(request: HttpRequest) -> User:
    """Return the signed-in user, in a view that requires a permission."""
    assert isinstance(request.user, User), "the view requires a permission, so the user is signed in"
    return request.user


def needs_record(view: View[P]) -> View[P]:
    """Make a view respond with 503 while the record cannot be read. Template `503.html`: `sentence`."""

    @functools.wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        try:
            return view(request, *args, **kwargs)
        except StateError as error:
            return render(request, "503.html", {"sentence": str(error)}, status=503)

    return wrapper
