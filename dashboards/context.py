"""What every template may use."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from fleet.models.access import Permission, may
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.verdicts import State

_VERDICTS = {
    "verdicts": tuple(State),
    "verdict_words": [
        {"slug": state.slug, "label": state.label, "headline": state.look.headline} for state in State
    ],
}


def console(request: HttpRequest) -> dict[str, Any]:
    """Return the `cluster` of the URL, and what else every page needs.

    `url_prefix`: of links in the cluster ("" or "/c/NAME"); `can`: codenames of permissions; `verdicts`, and what
    scripts know of them, `verdict_words`.
    """
    match = request.resolver_match
    cluster = str(match.kwargs.get("cluster", DEFAULT_CLUSTER)) if match else DEFAULT_CLUSTER
    user = getattr(request, "user", None)
    can = {permission.value for permission in Permission if user is not None and may(user, permission)}
    return {
        "cluster": cluster,
        "url_prefix": "" if cluster == DEFAULT_CLUSTER else f"/c/{cluster}",
        "can": can,
        **_VERDICTS,
    }
