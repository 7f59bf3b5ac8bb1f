from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from django.core.checks import CheckMessage
from pytest_django import Settings

from fleet.management.doctor.examination import Examination
from fleet.management.doctor.findings import CheckFinding, CheckVerdict
from fleet.management.doctor.installation import InstallationFacts, read_installation


@pytest.fixture
def facts(tmp_path: Path) -> InstallationFacts:
    tmp_path.chmod(0o700)
    return replace(read_installation(), home=tmp_path, environment={"REFLOAT_SECRET_KEY": "x"})


def _run(facts: InstallationFacts, clock: Callable[[], float] = time.time) -> dict[str, CheckFinding]:
    findings = Examination(facts, list, clock).run()
    return {finding.name: finding for finding in findings}


@pytest.mark.django_db
def test_console_that_does_not_run(facts: InstallationFacts) -> None:
    """The embedded Valkey is missing; what depends on it is skipped, and the others are checked."""
    findings = _run(facts)

    assert findings["redis-connection"].verdict is CheckVerdict.ERROR
    assert "embedded Valkey is not running" in findings["redis-connection"].summary
    assert findings["polling-rounds"].verdict is CheckVerdict.SKIPPED
    assert findings["database-migrations"].verdict is CheckVerdict.OK
    assert findings["home-folder"].verdict is CheckVerdict.OK
    assert findings["channel-deliveries"].verdict is CheckVerdict.SKIPPED


@pytest.mark.django_db
def test_clock_of_this_machine_is_wrong(
    facts: InstallationFacts, valkey_url: str, settings: Settings
) -> None:
    """Five minutes ahead of that of Redis."""
    settings.CELERY_BROKER_URL = valkey_url

    findings = _run(replace(facts, configured_redis_url=valkey_url), clock=lambda: time.time() + 300)

    assert findings["redis-clock"].verdict is CheckVerdict.ERROR
    assert "5 min ahead of" in findings["redis-clock"].summary


def test_invalid_addresses_are_not_replaced_by_defaults(facts: InstallationFacts) -> None:
    """The default database is another one."""
    errors = ("DATABASE_URL is invalid", "REDIS_URL_FILE='x' cannot be read")

    findings = _run(replace(facts, setting_errors=errors))

    assert findings["setting-values"].verdict is CheckVerdict.ERROR
    for name in ("database-connection", "redis-connection", "polling-rounds", "alerting"):
        assert findings[name].verdict is CheckVerdict.SKIPPED


def test_failing_check_does_not_stop_the_others(
    facts: InstallationFacts, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a finding, with a traceback in the log."""

    def fail() -> Sequence[CheckMessage]:
        raise RuntimeError("unexpected")

    errors = ("DATABASE_URL is invalid",)
    findings = Examination(replace(facts, setting_errors=errors), fail).run()

    failure = next(finding for finding in findings if finding.name == "setting-combinations")
    assert failure.summary == "The check ended with RuntimeError: unexpected."
    assert "Traceback" in caplog.text
    assert "redis-connection" in {finding.name for finding in findings}
