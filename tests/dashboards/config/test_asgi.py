"""The console as it is served."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ENQUEUE_SCRIPT = """
from threading import Thread
import dashboards.config.asgi
from celery import current_app
Thread(target=lambda: print(current_app.main, current_app.conf.broker_url)).start()
"""


def test_pages_enqueue_through_our_app(tmp_path: Path) -> None:
    """In whatever thread a view runs: Celery's own default would look for RabbitMQ."""
    env = {**os.environ, "REFLOAT_HOME": str(tmp_path), "REDIS_URL": "redis://127.0.0.1:1/7"}
    process = subprocess.run(
        [sys.executable, "-c", _ENQUEUE_SCRIPT], env=env, capture_output=True, text=True, timeout=60
    )
    assert process.stdout.split() == ["refloat", "redis://127.0.0.1:1/7"], process.stderr


def test_pages_do_not_wait_for_the_api() -> None:
    """Its operations take half as long to import as all pages do, so the server imports them after it serves."""
    code = (
        "import sys, django; django.setup(); import dashboards.urls\n"
        # Before the server exists, whose timer imports them: a slow machine may reach it within one import.
        "before = 'dashboards.api_v1' in sys.modules\n"
        "import dashboards.config.asgi as asgi\n"
        "asgi._api_import.join()\n"
        "print(before, 'dashboards.api_v1' in sys.modules)"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "dashboards.config.settings"}

    process = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120
    )

    assert process.stdout.split() == ["False", "True"]
