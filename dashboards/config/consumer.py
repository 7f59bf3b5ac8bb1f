"""A Celery consumer that survives the loss of Redis at any time: CELERY_WORKER_CONSUMER in `settings`."""

from __future__ import annotations

import logging

import redis
from celery.worker.consumer import Consumer
from kombu.exceptions import OperationalError
from typing_extensions import override

log = logging.getLogger(__name__)


def log_lost_broker_in_one_line(record: logging.LogRecord) -> bool:
    """Remove the stack from the line about a message that could not be acknowledged: Redis delivers it again."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, redis.ConnectionError | redis.TimeoutError | OperationalError | OSError):
        record.exc_info = None
    return True


logging.getLogger("celery.worker.request").addFilter(log_lost_broker_in_one_line)


class LastingConsumer(Consumer):
    """Celery's consumer, with one change: the loss of Redis ends the connection, never the worker."""

    @override
    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Close a failed connection.

        When a channel closes, kombu 5.7 puts unacknowledged messages back. Without a connection, that raises an
        AttributeError. Celery handles only connection errors here, so the worker would end. Redis still has the
        message, and delivers it again after its visibility timeout.
        """
        try:
            super().on_connection_error_after_connected(exc)
        except AttributeError as error:
            log.warning(
                "worker.unacknowledged: an unacknowledged message will be delivered again (%s)", error
            )
