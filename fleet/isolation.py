"""Blocks and loops in which the failure of one cluster or change does not reach the next.

Tasks and alerting use them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import Error, connection

from fleet.models import Change, Cluster
from fleet.monitoring.state import StateError
from fleet.vocabulary.actions import ChangeError

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Block:
    """A block that is kept apart: whether an error ended it."""

    has_failed: bool = False


@contextmanager
def isolate_errors(subject: str) -> Iterator[Block]:
    """Log an error of the block, and end it there. `subject` says in the log what a failure means."""
    block = Block()
    try:
        yield block
    except (ChangeError, StateError) as error:
        block.has_failed = True
        logger.warning("%s: %s", subject, error)
    except Error:
        block.has_failed = True
        logger.exception("%s: the database failed", subject)
        # The connection may be broken as well; the next query makes another.
        if not connection.in_atomic_block:
            connection.close()
    except Exception:
        block.has_failed = True
        logger.exception("%s", subject)


def for_each_cluster(
    failure_note: str, work: Callable[[Cluster], object], clusters: Iterable[Cluster] | None = None
) -> bool:
    """Do the work for each cluster, by default for all there are, and return whether no error ended any of it.

    `trouble` says in the log what a failure means.
    """
    failures = 0
    for cluster in Cluster.objects.all() if clusters is None else clusters:
        with isolate_errors(f"cluster {cluster.id}: {failure_note}") as block:
            work(cluster)
        failures += block.has_failed
    return not failures


def for_each_change(changes: Iterable[Change], work: Callable[[Change], object]) -> None:
    """Do the work for each change."""
    for change in changes:
        with isolate_errors(f"change {change.pk}"):
            work(change)
