"""The console's programs as forked copies of its command: their settings. tests/flow/test_demo.py runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from fleet.management import forked_programs, programs
from tests.meta.house import ROOT

_COPY_PROGRAM = """
import json, os, sys
import django
from django.conf import settings
django.setup()
from fleet.management import forked_programs
before = settings.REDIS_URL
forked_programs.import_shared_modules()
import threading
threads = threading.active_count()
forked_programs.replace_environment({**os.environ, **json.loads(sys.argv[1])})
from dashboards.config import beat, celery
print(json.dumps([
    before != settings.REDIS_URL, threads, settings.REDIS_URL, settings.CHANNEL_LAYERS["default"]["CONFIG"]["hosts"],
    celery.app.conf.broker_url, settings.REFLOAT_ROUND_INTERVAL,
    beat.app.conf.beat_schedule["start-round"]["schedule"],
    len(os.listdir("/proc/self/task")),
]))
"""


def test_copy_reads_the_settings_from_its_environment(tmp_path: Path) -> None:
    """All settings follow the environment of the copy, and the imports start no thread."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("REFLOAT_", "REDIS_"))
    }
    env = {
        **environment,
        "REFLOAT_HOME": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "dashboards.config.settings",
    }
    env["OPENBLAS_NUM_THREADS"] = "1"  # as in manage.py
    changed_variables = {"REDIS_URL": "redis://redis.example/0", "REFLOAT_ROUND_INTERVAL": "0.6"}
    output = subprocess.run(
        [sys.executable, "-c", _COPY_PROGRAM, json.dumps(changed_variables)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    url = changed_variables["REDIS_URL"]
    assert json.loads(output) == [True, 1, url, [url], url, 0.6, 0.6, 1]


def test_every_program_of_the_console_can_be_forked(tmp_path: Path) -> None:
    """A program that must be executed loads all modules again."""
    assert all(
        forked_programs.can_fork(program.argv)
        for program in programs.create_console_programs(tmp_path, "127.0.0.1", 8123)
    )
