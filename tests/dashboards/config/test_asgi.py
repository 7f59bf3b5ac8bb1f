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
