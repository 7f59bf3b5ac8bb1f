from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery import current_app
from pytest_django import Settings

from dashboards.shared import record_reader


@pytest.fixture
def live_redis(
    valkey_url: str, prefix: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The Redis of the settings; tasks go to the broker of nobody."""
    monkeypatch.setattr(current_app, "send_task", lambda name, **_: None)
    settings.REDIS_URL, settings.REFLOAT_PREFIX = valkey_url, prefix
    record_reader.connection_test_store.cache_clear()
    yield
    record_reader.connection_test_store.cache_clear()
