"""API routes of users, as on the page *Users*. docs/reference/access.md."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils import timezone
from ninja import Router, Status
from ninja.errors import HttpError
from pydantic import Field

from dashboards.access.user_rows import UserRow, read_user_rows
from dashboards.access.users import link_of, require_row, require_user
from dashboards.shared import refusals
from dashboards.shared.api.access import ApiAccess
from dashboards.shared.api.change_responses import (
    REFUSAL_RESPONSES,
    caller_of,
    request_actor_of,
    require_reauthentication,
)
from dashboards.shared.api.parameters import RequestBody, Schema
from dashboards.shared.pages import sentence_of
from dashboards.shared.permissions import find_write_refusal
from fleet import tokens, users
from fleet.models.access import ROLES, Permission
from fleet.users import UserRefusedError

router = Router()
_MANAGE = ApiAccess(Permission.MANAGE_ACCESS, is_per_cluster=False)
_Role = Annotated[str, Field(max_length=32, json_schema_extra={"enum": list(ROLES)})]
_Clusters = Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=1000)]


class UserItem(Schema):
    """A user with what gives access, and the state of the account."""

    username: str
    """Name with which the user signs in."""
    email: str
    """E-mail address; empty without one."""
    role: str
    """Role; empty without one."""
    clusters: list[str]
    """Clusters that the user is limited to; empty: every cluster."""
    second_factors: list[str]
    """`authenticator app` and `security key`; empty without a second factor."""
    last_sign_in: datetime | None
    """When the user last signed in; null: never."""
    session_count: int
    """Open sessions."""
    token_count: int
    """API tokens that are neither revoked nor expired."""
    state: str
    """`active`, `invited` (no password yet) or `disabled`."""


class UsersResponse(Schema):
    """All users."""

    users: list[UserItem]
    """By name."""


class InvitedUser(Schema):
    """A user with the link of the invitation."""

    user: UserItem
    """The user."""
    link: str
    """Link with which the person sets a password: once, within 24 h. No other response has it."""


class EndedAccess(Schema):
    """What an action ended."""

    count: int
    """Sessions, tokens or second factors that were ended, revoked or removed."""


class InviteUserRequest(RequestBody):
    """A new user."""

    username: Annotated[str, Field(max_length=150)]
    """Name with which the user signs in."""
    email: Annotated[str, Field(max_length=254)] = ""
    """E-mail address."""
    role: _Role
    """Role."""
    clusters: Annotated[_Clusters, Field(default_factory=list)]
    """Clusters that the user is limited to; empty: every cluster."""


class ChangeUserRequest(RequestBody):
    """New values of a user. What is left out or null does not change."""

    role: _Role | None = None
    """Role."""
    clusters: _Clusters | None = None
    """Clusters that the user is limited to; empty: every cluster."""
    is_active: bool | None = None
    """Whether the user may sign in. False ends all sessions."""


@router.get("/users", summary="List users", auth=_MANAGE, response={200: UsersResponse, **REFUSAL_RESPONSES})
def list_users(request: HttpRequest) -> Any:
    """Return every user with role, cluster limits, second factor, sessions and tokens."""
    _require_manager(request)
    return UsersResponse(users=[_item_of(row) for row in read_user_rows(timezone.now())])


@router.post(
    "/users", summary="Invite a user", auth=_MANAGE, response={201: InvitedUser, **REFUSAL_RESPONSES}
)
def invite_user(request: HttpRequest, body: InviteUserRequest) -> Any:
    """Create a user, and return the link with which the person sets a password."""
    _require_change(request)
    _require_role(body.role)
    actor = request_actor_of(request)
    try:
        user, token = users.invite(
            body.username, body.role, actor, now=timezone.now(), email=body.email, clusters=body.clusters
        )
    except ValidationError as error:
        raise HttpError(400, " ".join(error.messages)) from error
    return Status(
        201, InvitedUser(user=_item_of(require_row(user.get_username())), link=link_of(request, token))
    )


@router.get(
    "/users/{username}", summary="Get a user", auth=_MANAGE, response={200: UserItem, **REFUSAL_RESPONSES}
)
def get_user(request: HttpRequest, username: str) -> Any:
    """Return a user with role, cluster limits, second factor, sessions and tokens."""
    _require_manager(request)
    require_user(username)
    return _item_of(require_row(username))


@router.post(
    "/users/{username}", summary="Change a user", auth=_MANAGE, response={200: UserItem, **REFUSAL_RESPONSES}
)
def change_user(request: HttpRequest, username: str, body: ChangeUserRequest) -> Any:
    """Change the role and the cluster limits of a user, or disable or enable the user.

    409 for the last administrator, and for yourself where you would lose access.
    """
    user = _require_change(request, username)
    actor, now = request_actor_of(request), timezone.now()
    try:
        if body.role is not None:
            _require_role(body.role)
            users.change_role(user, body.role, actor, now)
        if body.clusters is not None:
            users.change_limits(user, body.clusters, actor, now)
        if body.is_active is not None:
            users.set_active(user, actor, now, is_active=body.is_active)
    except UserRefusedError as error:
        raise _refusal_of(request, error) from error
    return _item_of(require_row(username))


@router.post(
    "/users/{username}/invitation",
    summary="Renew an invitation",
    auth=_MANAGE,
    response={201: InvitedUser, **REFUSAL_RESPONSES},
)
def renew_invitation(request: HttpRequest, username: str) -> Any:
    """Return a new link for a user without a password; the last one stops working."""
    user = _require_change(request, username)
    try:
        token = users.renew_invitation(user, request_actor_of(request), timezone.now())
    except UserRefusedError as error:
        raise _refusal_of(request, error) from error
    return Status(201, InvitedUser(user=_item_of(require_row(username)), link=link_of(request, token)))


@router.post(
    "/users/{username}/end-sessions",
    summary="End the sessions of a user",
    auth=_MANAGE,
    response={200: EndedAccess, **REFUSAL_RESPONSES},
)
def end_user_sessions(request: HttpRequest, username: str) -> Any:
    """Sign a user out everywhere. API tokens keep working."""
    user = _require_change(request, username)
    return EndedAccess(count=users.end_all_sessions(user, request_actor_of(request), timezone.now()))


@router.post(
    "/users/{username}/revoke-tokens",
    summary="Revoke the API tokens of a user",
    auth=_MANAGE,
    response={200: EndedAccess, **REFUSAL_RESPONSES},
)
def revoke_user_tokens(request: HttpRequest, username: str) -> Any:
    """Revoke all API tokens of a user permanently."""
    user = _require_change(request, username)
    return EndedAccess(count=tokens.revoke_all_tokens(user, request_actor_of(request), timezone.now()))


@router.post(
    "/users/{username}/reset-second-factor",
    summary="Reset the second factor of a user",
    auth=_MANAGE,
    response={200: EndedAccess, **REFUSAL_RESPONSES},
)
def reset_user_second_factor(request: HttpRequest, username: str) -> Any:
    """Remove the authenticator app, the security keys and the recovery codes of a user."""
    user = _require_change(request, username)
    return EndedAccess(count=users.reset_second_factor(user, request_actor_of(request), timezone.now()))


def _item_of(row: UserRow) -> UserItem:
    return UserItem(
        username=row.username,
        email=row.email,
        role=row.role,
        clusters=list(row.clusters),
        second_factors=list(row.second_factors),
        last_sign_in=row.last_sign_in,
        session_count=row.session_count,
        token_count=row.token_count,
        state=row.state,
    )


def _require_manager(request: HttpRequest) -> None:
    """Require a caller without a cluster limit. Raises HttpError 403."""
    if sentence := find_write_refusal(caller_of(request), Permission.MANAGE_ACCESS, ""):
        raise HttpError(403, sentence)


def _require_change(request: HttpRequest, username: str = "") -> User:
    """Require a manager with recent proof, and return the user if one is named. Raises HttpError 403, Http404."""
    _require_manager(request)
    user = require_user(username) if username else caller_of(request)
    require_reauthentication(request)
    return user


def _require_role(role: str) -> None:
    if role not in ROLES:
        raise HttpError(400, f"role: unknown role {role!r}; use {', '.join(ROLES)}.")


def _refusal_of(request: HttpRequest, error: UserRefusedError) -> HttpError:
    sentence = sentence_of(error)
    refusals.record(request, sentence)
    return HttpError(409, sentence)
