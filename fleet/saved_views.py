"""Saved views of the list of agents: who sees and changes them, and each change with its audit entry.

Everybody who sees the cluster may save private views. Shared views need the permission to act on the fleet. Only the
owner and administrators change and delete a view.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.utils import timezone

from fleet.audit import RequestActor, record_outcome
from fleet.models.access import Permission, has_permission
from fleet.models.saved_views import SavedView
from fleet.vocabulary.actions import AuditAction, RefusalError

#: Most views that one user saves in one cluster.
MAX_VIEWS = 100
MAX_NAME_LENGTH = 100


class SavedViewError(RefusalError, ValueError):
    """A view that cannot be saved; the message says why, as a sentence."""


class SavedViewForbiddenError(SavedViewError):
    """The user may not share, change or delete this view."""


@dataclass(frozen=True, slots=True)
class ViewParameters:
    """What a view saves: the parameters of the page, empty where it has its default."""

    q: str = ""
    grouping: str = ""
    sort: str = ""
    columns: str = ""


def read_views(user: User, cluster: str) -> QuerySet[SavedView]:
    """Return the views that a user sees in a cluster: the own ones and the shared ones, by name."""
    return SavedView.objects.filter(cluster_id=cluster).filter(Q(owner=user) | Q(is_shared=True))


def find_view(user: User, cluster: str, view_id: int) -> SavedView | None:
    """Return a view that the user sees; None if there is none."""
    return read_views(user, cluster).filter(pk=view_id).first()


def parameters_in(view: SavedView) -> ViewParameters:
    """Return what a view saves."""
    return ViewParameters(view.q, view.grouping, view.sort, view.columns)


def can_change(user: User, view: SavedView) -> bool:
    """Return whether a user may rename, share and delete a view: the owner, and administrators."""
    return view.owner_id == user.pk or has_permission(user, Permission.MANAGE_ACCESS, view.cluster_id)


def save_view(
    user: User,
    cluster: str,
    name: str,
    parameters: ViewParameters,
    actor: RequestActor,
    *,
    require_valid: Callable[[ViewParameters], None],
    is_shared: bool,
) -> SavedView:
    """Create a view of a user, or replace the one with this name. Raises SavedViewError.

    require_valid: raises SavedViewError for parameters that the page would not accept.
    """
    view = SavedView.objects.filter(cluster_id=cluster, owner=user, name=name.strip()).first()
    action = AuditAction.SAVED_VIEW_CREATE if view is None else AuditAction.SAVED_VIEW_UPDATE
    attempt = actor.create_attempt(action, cluster, name.strip(), before=_audit_values_of(view))
    with record_outcome(attempt):
        if view is None and SavedView.objects.filter(cluster_id=cluster, owner=user).count() >= MAX_VIEWS:
            raise SavedViewError(
                f"You have {MAX_VIEWS} views in this cluster, and no more are allowed. Delete one first."
            )
        require_valid(parameters)
        view = view or SavedView(cluster_id=cluster, owner=user)
        view.q, view.grouping = parameters.q, parameters.grouping
        view.sort, view.columns = parameters.sort, parameters.columns
        _write(user, view, name, is_shared=is_shared)
        attempt.after = _audit_values_of(view)
    return view


def change_view(
    user: User,
    view: SavedView,
    actor: RequestActor,
    *,
    name: str | None = None,
    is_shared: bool | None = None,
) -> None:
    """Rename a view, share it, or make it private; None leaves as it is. Raises SavedViewError."""
    attempt = actor.create_attempt(
        AuditAction.SAVED_VIEW_UPDATE, view.cluster_id, view.name, before=_audit_values_of(view)
    )
    with record_outcome(attempt):
        _require_change(user, view)
        _write(
            user,
            view,
            view.name if name is None else name,
            is_shared=view.is_shared if is_shared is None else is_shared,
        )
        attempt.after = _audit_values_of(view)


def delete_view(user: User, view: SavedView, actor: RequestActor) -> None:
    """Delete a view. Raises SavedViewForbiddenError."""
    with record_outcome(
        actor.create_attempt(
            AuditAction.SAVED_VIEW_DELETE, view.cluster_id, view.name, before=_audit_values_of(view)
        )
    ):
        _require_change(user, view)
        view.delete()


def _write(user: User, view: SavedView, name: str, *, is_shared: bool) -> None:
    name = name.replace("\0", "").strip()
    if not name:
        raise SavedViewError("Enter a name for the view.")
    if len(name) > MAX_NAME_LENGTH:
        raise SavedViewError(
            f"The name has {len(name)} characters, and at most {MAX_NAME_LENGTH} are allowed. Shorten the name."
        )
    same_named_views = SavedView.objects.filter(cluster_id=view.cluster_id, owner_id=view.owner_id, name=name)
    if same_named_views.exclude(pk=view.pk).exists():
        raise SavedViewError(f"There is a view {name!r} already. Choose another name.")
    if is_shared and not has_permission(user, Permission.ACT_ON_FLEET, view.cluster_id):
        raise SavedViewForbiddenError("Not allowed: sharing a view needs the role operator.")
    view.name, view.is_shared, view.updated_at = name, is_shared, timezone.now()
    view.save()


def _require_change(user: User, view: SavedView) -> None:
    if not can_change(user, view):
        raise SavedViewForbiddenError(
            f"Not allowed: only {view.owner.get_username()} and administrators can change this view."
        )


def _audit_values_of(view: SavedView | None) -> Mapping[str, Any] | None:
    if view is None:
        return None
    return {
        "name": view.name,
        "is_shared": view.is_shared,
        "owner": view.owner.get_username(),
        "q": view.q,
        "group": view.grouping,
        "sort": view.sort,
        "columns": view.columns,
    }
