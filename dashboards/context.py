"""What every template may use."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from fleet.models.access import Permission, may
from fleet.models.clusters import DEFAULT_CLUSTER


def console(request: HttpRequest) -> dict[str, Any]:
    """`cluster` of the URL, `url_prefix` for links in it ("" or "/c/NAME"), `can`: codenames of permissions."""
    match = request.resolver_match
    cluster = str(match.kwargs.get("cluster", DEFAULT_CLUSTER)) if match else DEFAULT_CLUSTER
    user = getattr(request, "user", None)
    can = {permission.value for permission in Permission if user is not None and may(user, permission)}
    return {
        "cluster": cluster,
        "url_prefix": "" if cluster == DEFAULT_CLUSTER else f"/c/{cluster}",
        "can": can,
    }
