"""What a new installation begins with, and that every command may load it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fleet.alerts import store
from fleet.alerts.defaults import ensure_alert_defaults
from fleet.alerts.rules import DEFAULT_RULES
from fleet.models.alerting import AlertRule
from tests.meta.house import ROOT

#: Packages that take a tenth of a second and more to import; `refloat user`, `backup` and `prepare` need none of them.
_HEAVY_PACKAGES = ("celery", "grpc", "ninja", "numpy", "pydantic", "redis", "requests")


@pytest.mark.django_db
def test_new_installation_has_default_rules_and_a_route() -> None:
    """Creating the defaults again changes nothing."""
    ensure_alert_defaults()
    assert set(store.read_rules("default")) == set(DEFAULT_RULES)
    AlertRule.objects.filter(name="Agents stranded").update(enabled=False)
    ensure_alert_defaults()
    assert AlertRule.objects.count() == len(DEFAULT_RULES)
    assert not AlertRule.objects.get(name="Agents stranded").enabled
    assert [route.name for route in store.read_routes("default")] == ["Everything"]


def test_commands_start_without_what_they_do_not_use() -> None:
    """The apps of every command load neither the evaluation of alerts, nor the queue, nor the API."""
    program = (
        "import django, json, sys; django.setup(); "
        f"print(json.dumps([name for name in {_HEAVY_PACKAGES} if name in sys.modules]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert json.loads(output) == []
