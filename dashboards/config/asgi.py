"""The console as one ASGI application: pages, API, static files and sockets."""

from __future__ import annotations

import os

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")

# Before anything that imports models.
_pages = get_asgi_application()

application = ProtocolTypeRouter({"http": _pages})
