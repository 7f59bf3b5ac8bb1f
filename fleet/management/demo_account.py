"""The user and the API token of the demo, kept between runs in REFLOAT_HOME/demo.json (mode 0600)."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from django.contrib.auth.models import User
from django.db import transaction

from fleet.models.access import ROLES, set_role
from fleet.models.tokens import create_token, find_token
from fleet.processes import folders

USERNAME = "demo"
_ROLE = "admin"


@dataclass(frozen=True, slots=True)
class DemoAccount:
    """URL, user, password and API token of the demo."""

    url: str
    username: str
    password: str
    token: str


def read_account(home: Path) -> DemoAccount | None:
    """Return the account of the last run; None if there is none or the file cannot be read."""
    try:
        return DemoAccount(**json.loads(account_path(home).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def ensure_account(home: Path, url: str, now: datetime) -> DemoAccount:
    """Create the user and the token, or reuse those of the last run, and write demo.json.

    A working password is kept, because a new one would end the user's sessions.
    """
    last_account = read_account(home)
    with transaction.atomic():
        user, is_new = User.objects.get_or_create(username=USERNAME)
        password = last_account.password if last_account else secrets.token_urlsafe(12)
        # A check takes as long as a new hash, half a second.
        if is_new or not last_account or not user.check_password(password):
            user.set_password(password)
        user.is_active = True
        user.save()
        set_role(user, _ROLE)
        last_token = find_token(last_account.token, now) if last_account else None
        if last_account and last_token is not None and last_token.user == user:
            token = last_account.token
        else:
            _, token = create_token(user, "demo", ROLES[_ROLE], lifetime=None, now=now)
    account = DemoAccount(url=url, username=USERNAME, password=password, token=token)
    folders.write_private_file(account_path(home), json.dumps(asdict(account), indent=1) + "\n")
    return account


def is_active(home: Path) -> bool:
    """Return whether the user of an earlier demo in this home can still sign in. Raises DatabaseError."""
    return account_path(home).exists() and User.objects.filter(username=USERNAME, is_active=True).exists()


def account_path(home: Path) -> Path:
    """Return the path of demo.json."""
    return home / "demo.json"
