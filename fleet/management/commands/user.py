"""`manage.py user`: create users, assign roles, disable and enable users."""

from __future__ import annotations

import json
import secrets
import sys
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from typing_extensions import override

from fleet import users
from fleet.audit import shell_actor_of
from fleet.management.base_command import ConsoleCommand
from fleet.models.access import ROLES, iterate_sessions
from fleet.tokens import revoke_all_tokens
from fleet.users import create_user

#: Where `refloat serve` listens unless it is told otherwise.
_LOCAL_URL = "http://127.0.0.1:8000"


class Command(ConsoleCommand):
    """Manage users without the console."""

    help = "Create users, assign roles, disable and enable users."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(
            dest="subcommand",
            required=True,
            metavar="create|invite|role|limits|list|show|sessions|tokens|second-factor|disable|enable",
        )
        create = subparsers.add_parser(
            "create", help="create a user; prints the password unless one is given"
        )
        create.add_argument("username", help="name of the new user")
        create.add_argument(
            "--role",
            required=True,
            choices=list(ROLES),
            help="role of the new user; write a role with a blank in quotes",
        )
        create.add_argument("--email", default="", help="email address for password resets")
        create.add_argument("--password-stdin", action="store_true", help="read the password from stdin")
        create.add_argument(
            "--cluster", action="append", default=[], help="limit the user to this cluster (repeatable)"
        )
        role = subparsers.add_parser("role", help="change the role of a user")
        role.add_argument("username", help="name of the user")
        role.add_argument(
            "role", choices=list(ROLES), help="new role of the user; write a role with a blank in quotes"
        )
        invite = subparsers.add_parser(
            "invite", help="create a user who sets a password by a link, or print a new link"
        )
        invite.add_argument("username", help="name of the user")
        invite.add_argument(
            "--role",
            choices=list(ROLES),
            help="role of the new user; write a role with a blank in quotes",
        )
        invite.add_argument("--email", default="", help="email address for password resets")
        invite.add_argument(
            "--cluster", action="append", default=[], help="limit the user to this cluster (repeatable)"
        )
        limits = subparsers.add_parser("limits", help="limit a user to clusters")
        limits.add_argument("username", help="name of the user")
        limits.add_argument("clusters", nargs="*", help="ids of clusters; none: every cluster")
        show = subparsers.add_parser("show", help="show one user")
        show.add_argument("username", help="name of the user")
        show.add_argument("--json", action="store_true", help="print a JSON object")
        for name, help_text in (
            ("sessions", "end all sessions of a user"),
            ("tokens", "revoke all API tokens of a user"),
            ("second-factor", "reset the second factor of a user"),
        ):
            subparsers.add_parser(name, help=help_text).add_argument("username", help="name of the user")
        listing = subparsers.add_parser("list", help="list users and their roles")
        listing.add_argument("--json", action="store_true", help="print a JSON array")
        for state, help_text in (
            ("disable", "disable a user: end the sessions and refuse sign-in"),
            ("enable", "enable a disabled user"),
        ):
            subparsers.add_parser(state, help=help_text).add_argument("username", help="name of the user")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        handlers = {
            "create": self._create,
            "invite": self._invite,
            "role": self._set_role,
            "limits": self._set_limits,
            "list": self._list,
            "show": self._show,
            "sessions": self._end_sessions,
            "tokens": self._revoke_tokens,
            "second-factor": self._reset_second_factor,
        }
        handlers.get(options["subcommand"], self._set_active)(options)

    def _create(self, options: dict[str, Any]) -> None:
        username = options["username"]
        if User.objects.filter(username=username).exists():
            raise CommandError(
                f"User {username} already exists. `user role` changes the role of a user.", returncode=2
            )
        entered_password = sys.stdin.readline().rstrip("\n") if options["password_stdin"] else ""
        password = entered_password or secrets.token_urlsafe(12)
        try:
            create_user(
                username,
                password,
                options["role"],
                shell_actor_of("user"),
                now=timezone.now(),
                email=options["email"],
                clusters=options["cluster"],
            )
        except ValidationError as error:
            raise CommandError(" ".join(error.messages), returncode=2) from error
        self.stdout.write(f"{username} created with role {options['role']}" if entered_password else password)

    def _invite(self, options: dict[str, Any]) -> None:
        username, actor, now = options["username"], shell_actor_of("user"), timezone.now()
        user = User.objects.filter(username=username).first()
        try:
            if user is not None:
                token = users.renew_invitation(user, actor, now)
            elif options["role"] is None:
                raise CommandError("A new user needs --role.", returncode=2)
            else:
                _, token = users.invite(
                    username,
                    options["role"],
                    actor,
                    now=now,
                    email=options["email"],
                    clusters=options["cluster"],
                )
        except ValidationError as error:
            raise CommandError(" ".join(error.messages), returncode=2) from error
        except users.UserRefusedError as error:
            raise CommandError(f"{error}.", returncode=2) from error
        self.stdout.write(f"{(settings.REFLOAT_PUBLIC_URL or _LOCAL_URL).rstrip('/')}/invitation/{token}/")

    def _set_role(self, options: dict[str, Any]) -> None:
        user = _require_user(options["username"])
        users.change_role(user, options["role"], shell_actor_of("user"), timezone.now())
        self.stdout.write(f"{user} has role {options['role']}")

    def _set_limits(self, options: dict[str, Any]) -> None:
        user = _require_user(options["username"])
        try:
            users.change_limits(user, options["clusters"], shell_actor_of("user"), timezone.now())
        except users.UserRefusedError as error:
            raise CommandError(f"{error}.", returncode=2) from error
        self.stdout.write(f"{user} sees {', '.join(options['clusters']) or 'all clusters'}")

    def _set_active(self, options: dict[str, Any]) -> None:
        user = _require_user(options["username"])
        users.set_active(
            user, shell_actor_of("user"), timezone.now(), is_active=options["subcommand"] == "enable"
        )
        self.stdout.write(f"{user} is {'enabled' if user.is_active else 'disabled'}")

    def _end_sessions(self, options: dict[str, Any]) -> None:
        user = _require_user(options["username"])
        count = users.end_all_sessions(user, shell_actor_of("user"), timezone.now())
        self.stdout.write(f"{count} sessions of {user} ended")

    def _revoke_tokens(self, options: dict[str, Any]) -> None:
        user = _require_user(options["username"])
        count = revoke_all_tokens(user, shell_actor_of("user"), timezone.now())
        self.stdout.write(f"{count} API tokens of {user} revoked")

    def _reset_second_factor(self, options: dict[str, Any]) -> None:
        user = _require_user(options["username"])
        count = users.reset_second_factor(user, shell_actor_of("user"), timezone.now())
        self.stdout.write(f"{count} second factors of {user} removed")

    def _show(self, options: dict[str, Any]) -> None:
        user = _require_user(options["username"])
        row = {
            **_row_of(user),
            "invited": not user.has_usable_password(),
            "sessions": sum(1 for _ in iterate_sessions(user)),
            "tokens": sum(token.is_valid(timezone.now()) for token in user.api_tokens.select_related("user")),
        }
        if options["json"]:
            self.stdout.write(json.dumps(row, indent=1))
            return
        for name, content in row.items():
            text = ", ".join(content) if isinstance(content, list) else content
            self.stdout.write(f"{name}: {text}")

    def _list(self, options: dict[str, Any]) -> None:
        rows = [
            _row_of(user)
            for user in User.objects.order_by("username").prefetch_related("groups", "cluster_limits")
        ]
        if options["json"]:
            self.stdout.write(json.dumps(rows, indent=1))
            return
        for row in rows:
            state = "" if row["active"] else "  (disabled)"
            cluster_names = ", ".join(row["clusters"]) or "all clusters"
            self.stdout.write(
                f"{row['username']}  {', '.join(row['roles']) or 'no role'}  {cluster_names}{state}"
            )


def _require_user(username: str) -> User:
    user = User.objects.filter(username=username).first()
    if user is None:
        raise CommandError(f"User {username} was not found. `user list` shows all users.", returncode=2)
    return user


def _row_of(user: User) -> dict[str, Any]:
    return {
        "username": user.username,
        "email": user.email,
        "roles": sorted({group.name for group in user.groups.all()} & set(ROLES)),
        "clusters": sorted(limit.cluster for limit in user.cluster_limits.all()),
        "active": user.is_active,
        "last_login": user.last_login.isoformat() if user.last_login else None,
    }
