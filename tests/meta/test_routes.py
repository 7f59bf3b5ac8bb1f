"""Every address leads to its own route, whatever the ids of agents and instances are."""

from __future__ import annotations

import re

from django.urls import resolve

from tests.meta.walk import ROUTES, VALUES, report, url_of

_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")
_WALKED = [route for route in ROUTES if not route.path.startswith("/accounts/")]


def test_no_fixed_path_hides_an_object() -> None:
    """Agents and instances choose their ids: each segment of a path may be one, such as `retire`."""
    segments = {
        segment for route in _WALKED for segment in route.path.split("/") if re.fullmatch(r"[a-z-]+", segment)
    }
    assert {"retire", "agent-sets"} <= segments
    report(
        f"{url} leads to /{resolve(url).route} instead of {route.path}"
        for route in _WALKED
        for name in _PARAMETER.findall(route.path)
        if name in {"agent_id", "instance_id", "target"}
        for segment in sorted(segments)
        if "/" + resolve(url := url_of(route, {**VALUES, name: segment})).route != route.path
    )
