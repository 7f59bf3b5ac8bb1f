"""A console in memory, for the walks through all its routes and sockets."""

from __future__ import annotations

import logging
import time

import pytest
from celery import current_app
from pytest_django import Settings

from dashboards.shared import record_reader
from tests.fakes.connection_tests import FakeConnectionTestStore
from tests.fakes.policy_nodes import FakePolicyBook
from tests.fakes.reader import FakeReader


@pytest.fixture
def fleet_in_memory(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Give the console a fleet to show, and workers that do nothing."""
    # Hundreds of refusals are what a walk is for: their tracebacks would hide the violations.
    caplog.set_level(logging.ERROR, "django.request")
    fake = FakeReader(as_of=time.time())
    monkeypatch.setattr(record_reader, "reader", lambda: fake)
    monkeypatch.setattr(record_reader, "policy_report_store", FakePolicyBook)
    monkeypatch.setattr(record_reader, "connection_test_store", FakeConnectionTestStore)
    monkeypatch.setattr(current_app, "send_task", lambda name, **_: None)


@pytest.fixture
def socket_layer(transactional_db: None, settings: Settings, valkey_url: str, prefix: str) -> None:
    """A channel layer for the sockets."""
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [valkey_url], "prefix": f"{prefix}:layer"},
        }
    }
