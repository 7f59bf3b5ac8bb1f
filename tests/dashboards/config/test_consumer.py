"""The loss of Redis between a message and its acknowledgement."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import redis
from celery import Celery
from celery.worker.consumer import Consumer
from django.conf import settings

from dashboards.config.consumer import LastingConsumer
from fleet.processes import valkey


def _lose_connection(folder: Path, kind: type[Consumer]) -> Consumer:
    """A consumer whose Redis is gone: a message is not acknowledged, and it waits for the next one."""
    server = valkey.start(folder)
    app = Celery(broker=server.url)
    app.conf.worker_cancel_long_running_tasks_on_connection_loss = (
        True  # else Celery warns of its next version
    )
    connection = app.connection()
    queue = connection.SimpleQueue("q")
    queue.put("message")
    queue.get(timeout=10)
    connection.default_channel._brpop_start()
    server.stop()
    consumer = object.__new__(kind)
    consumer.app, consumer.connection = app, connection
    return consumer


def test_worker_outlives_a_message_that_is_not_acknowledged(tmp_path: Path) -> None:
    """The connection is let go of, and the next one is made as ever."""
    consumer = _lose_connection(tmp_path, LastingConsumer)
    consumer.on_connection_error_after_connected(ConnectionError("lost"))
    assert consumer.connection is None


def test_celery_does_not_outlive_it_by_itself(tmp_path: Path) -> None:
    """Once it does, our consumer can go."""
    with pytest.raises(AttributeError):
        _lose_connection(tmp_path, Consumer).on_connection_error_after_connected(ConnectionError("lost"))


@pytest.mark.parametrize(
    ("error", "has_stack"), [(redis.ConnectionError("refused"), False), (TypeError("a fault"), True)]
)
def test_message_that_is_not_acknowledged_is_one_line(
    caplog: pytest.LogCaptureFixture, error: Exception, has_stack: bool
) -> None:
    """Of a lost Redis; a fault of the program keeps its traceback."""
    logging.getLogger("celery.worker.request").critical("Couldn't ack %r", "message", exc_info=error)
    (record,) = caplog.records
    assert record.getMessage() == "Couldn't ack 'message'"
    assert bool(record.exc_info) is has_stack


def test_workers_use_it() -> None:
    """By its name in the settings."""
    assert f"{LastingConsumer.__module__}:{LastingConsumer.__qualname__}" == settings.CELERY_WORKER_CONSUMER
