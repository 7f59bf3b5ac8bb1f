"""A Celery consumer that survives the loss of Redis at any time: CELERY_WORKER_CONSUMER in `settings`."""

from __future__ import annotations

import logging

from celery.worker.consumer import Consumer
from typing_extensions import override

log = logging.getLogger(__name__)


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
