"""Loops over clusters and changes in which the failure of one does not reach the next: every task loops by these."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from django.db import Error, close_old_connections

from fleet.changes import ControlError
from fleet.models import Change, Cluster
from fleet.monitoring.state import StateError

logger = logging.getLogger(__name__)


@contextmanager
def apart(subject: str) -> Iterator[None]:
    """Log what goes wrong in the block, and end it there."""
    try:
        yield
    except (ControlError, StateError) as error:
        logger.warning("%s: %s", subject, error)
    except Error:
        logger.exception("%s: the database failed", subject)
        # The connection may be broken as well; the next query makes another.
        close_old_connections()
    except Exception:
        logger.exception("%s", subject)


def each_cluster(
    trouble: str, work: Callable[[Cluster], object], clusters: Iterable[Cluster] | None = None
) -> None:
    """Do the work for each cluster, by default for all there are; `trouble` says in the log what a failure means."""
    for cluster in Cluster.objects.all() if clusters is None else clusters:
        with apart(f"cluster {cluster.id}: {trouble}"):
            work(cluster)


def each_change(changes: Iterable[Change], work: Callable[[Change], object]) -> None:
    """Do the work for each change."""
    for change in changes:
        with apart(f"change {change.pk}"):
            work(change)
