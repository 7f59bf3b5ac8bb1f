"""Routes of sockets, and the origin check of all of them."""

from __future__ import annotations

from channels.routing import URLRouter
from django.urls import URLPattern, path, re_path

from dashboards.live.consumers import FleetConsumer
from dashboards.live.sockets import refuse, require_same_origin

websocket_urlpatterns: list[URLPattern] = [
    path("ws/fleet/", FleetConsumer.as_asgi()),
    path("ws/c/<slug:cluster>/fleet/", FleetConsumer.as_asgi()),
]
#: Other URLs are refused without an error in the log.
_unknown_url_route = re_path(r"", refuse)  # type: ignore[arg-type] # an ASGI application, as every route of a URLRouter

application = require_same_origin(URLRouter([*websocket_urlpatterns, _unknown_url_route]))
