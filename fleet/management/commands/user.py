"""`manage.py user`: create users, assign roles, disable and enable users."""

from __future__ import annotations

import json
import secrets
import sys
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from typing_extensions import override

from fleet.audit import shell_actor_of, write_entry
from fleet.management.base_command import ConsoleCommand
from fleet.models.access import ROLES, end_sessions, set_role
from fleet.users import audit_values_of, create_user
from fleet.vocabulary.actions import AuditAction, AuditOutcome


class Command(ConsoleCommand):
    """Manage users without the console."""

    help = "Create users, assign roles, disable and enable users."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(
            dest="subcommand", required=True, metavar="create|role|list|disable|enable"
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
        listing = subparsers.add_parser("list", help="list users and their roles")
        listing.add_argument("--json", action="store_true", help="print a JSON array")
        for state, help_text in (
            ("disable", "disable a user: end the sessions and refuse sign-in"),
            ("enable", "enable a disabled user"),
        ):
            subparsers.add_parser(state, help=help_text).add_argument("username", help="name of the user")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        handlers = {"create": self._create, "role": self._set_role, "list": self._list}
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

    def _set_role(self, options: dict[str, Any]) -> None:
        user = _require_user(options["username"])
        before = audit_values_of(user)
        set_role(user, options["role"])
        _record_action(AuditAction.USER_ROLE, user, before, audit_values_of(user))
        self.stdout.write(f"{user} has role {options['role']}")

    def _set_active(self, options: dict[str, Any]) -> None:
        user = _require_user(options["username"])
        before = audit_values_of(user)
        user.is_active = options["subcommand"] == "enable"
        user.save(update_fields=["is_active"])
        if not user.is_active:
            end_sessions(user)
        _record_action(
            AuditAction.USER_ENABLE if user.is_active else AuditAction.USER_DISABLE,
            user,
            before,
            audit_values_of(user),
        )
        self.stdout.write(f"{user} is {'enabled' if user.is_active else 'disabled'}")

    def _list(self, options: dict[str, Any]) -> None:
        rows: list[dict[str, Any]] = [
            {
                "username": user.username,
                "email": user.email,
                "roles": sorted({group.name for group in user.groups.all()} & set(ROLES)),
                "clusters": sorted(limit.cluster for limit in user.cluster_limits.all()),
                "active": user.is_active,
                "last_login": user.last_login.isoformat() if user.last_login else None,
            }
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


def _record_action(action: AuditAction, user: User, before: Any, after: Any) -> None:
    attempt = shell_actor_of("user").create_attempt(
        action, subject=user.get_username(), before=before, after=after
    )
    write_entry(attempt, AuditOutcome.SUCCEEDED, timezone.now())
