"""The console as one ASGI application: pages, API and static files by HTTP, live updates by WebSocket."""

from __future__ import annotations

import importlib
import os
import threading

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboards.config.settings")
# Before anything that imports models.
_pages = get_asgi_application()

from dashboards.config import celery  # noqa: E402, F401 - pages enqueue tasks through it
from dashboards.live.routing import application as _sockets  # noqa: E402 - models are loaded only now

application = ProtocolTypeRouter({"http": _pages, "websocket": _sockets})

#: Seconds from the start until the API is imported, if no request came first. The first pages have the processor
#: until then.
_API_IMPORT_AFTER_SECONDS = 3.0
_api_import = threading.Timer(_API_IMPORT_AFTER_SECONDS, importlib.import_module, ["dashboards.api_v1"])
_api_import.daemon = True
_api_import.start()
