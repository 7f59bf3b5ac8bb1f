"""Retiring an agent from a page or by the API: who asks, and that it is done soon."""

from __future__ import annotations

from django.utils import timezone

from dashboards import acting, reading
from fleet.control import retiring
from fleet.control.changes import By
from fleet.control.retiring import Wanted
from fleet.domain.views import Explanation


def is_alive(found: Explanation) -> bool:
    """Whether an agent shows a sign of life: a heartbeat that counts still, or a tunnel."""
    expires_at = found.view.expires_at
    return bool(found.view.proxies) or (expires_at is not None and expires_at > reading.current_time())


def want(cluster: str, found: Explanation, by: By, *, retired: bool, reason: str) -> None:
    """Keep what is wanted of an agent, and have the record follow."""
    view = found.view
    wanted = Wanted(view.id, view.name, view.index, retired, reason.strip(), by.actor, by.request_id)
    retiring.ask(cluster, wanted, timezone.now)
    acting.enqueue("fleet.tasks.apply_retired")
