"""Error isolation for tasks and alerting: a failure of one cluster or change does not stop the next one."""

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
class IsolatedBlock:
    """Result of an isolated block."""

    #: An error ended the block.
    has_failed: bool = False


@contextmanager
def isolate_errors(subject: str) -> Iterator[IsolatedBlock]:
    """Log an error of the block instead of raising it. `subject` names the work in the log line."""
    block = IsolatedBlock()
    try:
        yield block
    except (ChangeError, StateError) as error:
        block.has_failed = True
        logger.warning("%s: %s", subject, error)
    except Error:
        block.has_failed = True
        logger.exception("%s: database error", subject)
        # The connection may be broken too; the next query opens another one.
        if not connection.in_atomic_block:
            connection.close()
    except Exception:
        block.has_failed = True
        logger.exception("%s", subject)


def for_each_cluster(
    failure_note: str, work: Callable[[Cluster], object], clusters: Iterable[Cluster] | None = None
) -> bool:
    """Run `work` for each cluster, by default for all that are not paused. Return whether all of it succeeded.

    `failure_note` says in the log line what failed: `policies were not read`.
    """
    failure_count = 0
    for cluster in Cluster.objects.filter(is_paused=False) if clusters is None else clusters:
        with isolate_errors(f"cluster {cluster.id}: {failure_note}") as block:
            work(cluster)
        failure_count += block.has_failed
    return not failure_count


def for_each_change(changes: Iterable[Change], work: Callable[[Change], object]) -> None:
    """Run `work` for each change; errors are logged."""
    for change in changes:
        with isolate_errors(f"change {change.pk}"):
            work(change)
