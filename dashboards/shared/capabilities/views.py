"""Page views that show why a cluster does not have the capability that they need."""

from __future__ import annotations

import functools
from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from dashboards.shared import refusals
from dashboards.shared.capabilities.missing import missing_capabilities_of
from dashboards.shared.permissions import P, View
from fleet.models.clusters import DEFAULT_CLUSTER
from fleet.vocabulary.capabilities import Capability


def needs_capability(capability: Capability, title: str) -> Callable[[View[P]], View[P]]:
    """Make a view of a cluster show the reason instead, under `title`, if the cluster does not have a capability.

    Use it inside of `needs_record`. Template `dashboards/capability_missing.html`: `title`, `capability`, `reason`,
    `cluster_id`. A POST gets status 409.
    """

    def decorate(view: View[P]) -> View[P]:
        @functools.wraps(view)
        def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            cluster = str(kwargs.get("cluster", DEFAULT_CLUSTER))
            reason = missing_capabilities_of(cluster).get(capability)
            if reason is None:
                return view(request, *args, **kwargs)
            is_post = request.method == "POST"
            if is_post:
                refusals.record(request, reason)
            context = {"title": title, "capability": capability, "reason": reason, "cluster_id": cluster}
            return render(
                request, "dashboards/capability_missing.html", context, status=409 if is_post else 200
            )

        return wrapper

    return decorate
