"""`manage.py token`: create, list and revoke API tokens."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser
from django.utils import timezone
from typing_extensions import override

from fleet import tokens
from fleet.audit import shell_actor_of
from fleet.management.base_command import ConsoleCommand
from fleet.models.access import Permission, has_permission
from fleet.models.tokens import ApiToken


class Command(ConsoleCommand):
    """Manage API tokens without the console."""

    help = "Create, list and revoke API tokens."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        subparsers = parser.add_subparsers(dest="subcommand", required=True, metavar="create|list|revoke")
        create = subparsers.add_parser("create", help="create a token and print it, once")
        create.add_argument(
            "username", help="owner of the token; the token never has more permissions than its owner"
        )
        create.add_argument(
            "--name", required=True, help="name of the token, such as the program that uses it"
        )
        create.add_argument(
            "--scope",
            action="append",
            choices=[permission.value for permission in Permission],
            help="permission of the token, repeatable (default: view_fleet)",
        )
        create.add_argument(
            "--days", type=int, default=90, help="days until the token expires; 0: never (default: 90)"
        )
        listing = subparsers.add_parser("list", help="list tokens, without their secrets")
        listing.add_argument("--user", help="only tokens of this user")
        listing.add_argument("--json", action="store_true", help="print a JSON array")
        revoke = subparsers.add_parser("revoke", help="revoke a token immediately")
        revoke.add_argument("prefix", help="first characters of the token after rfl_, as `list` shows them")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        {"create": self._create, "list": self._list, "revoke": self._revoke}[options["subcommand"]](options)

    def _create(self, options: dict[str, Any]) -> None:
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(
                f"User {options['username']} was not found. `user list` shows all users.", returncode=2
            )
        if not user.is_active:
            raise CommandError(
                f"User {user} is disabled. Enable the user with `user enable {user}` first.", returncode=2
            )
        if options["days"] < 0:
            raise CommandError(
                "--days is negative: use a number of days, or 0 for a token that never expires.", returncode=2
            )
        scopes = [Permission(scope) for scope in options["scope"] or [Permission.VIEW_FLEET.value]]
        missing_scopes = [scope.value for scope in scopes if not has_permission(user, scope)]
        if missing_scopes:
            raise CommandError(
                f"User {user} does not have the permission {', '.join(missing_scopes)}. Assign a role "
                "with `user role` first.",
                returncode=2,
            )
        lifetime = timedelta(days=options["days"]) if options["days"] else None
        actor, now = shell_actor_of("token"), timezone.now()
        _, secret = tokens.issue_token(user, options["name"], scopes, actor, lifetime=lifetime, now=now)
        self.stdout.write(secret)

    def _list(self, options: dict[str, Any]) -> None:
        queryset = ApiToken.objects.select_related("user")
        if options["user"]:
            queryset = queryset.filter(user__username=options["user"])
        now = timezone.now()
        rows = [
            {
                "prefix": token.prefix,
                "user": token.user.username,
                "name": token.name,
                "scopes": token.scopes,
                "valid": token.is_valid(now),
                "expires_at": token.expires_at.isoformat() if token.expires_at else None,
                "last_used_at": token.last_used_at.isoformat() if token.last_used_at else None,
            }
            for token in queryset
        ]
        if options["json"]:
            self.stdout.write(json.dumps(rows, indent=1))
            return
        for row in rows:
            state = "valid" if row["valid"] else "not valid"
            scopes = ",".join(row["scopes"])
            self.stdout.write(f"{row['prefix']}  {state}  {row['user']}  {scopes}  {row['name']}")

    def _revoke(self, options: dict[str, Any]) -> None:
        token = ApiToken.objects.filter(prefix=options["prefix"]).first()
        if token is None:
            raise CommandError(
                f"Token {options['prefix']} was not found. `token list` shows all tokens.", returncode=2
            )
        tokens.revoke_token(token, shell_actor_of("token"), timezone.now())
        self.stdout.write(f"{token} is revoked")
