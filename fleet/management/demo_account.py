"""The demo's user and API token, kept between runs in REFLOAT_HOME/demo.json (readable by its owner alone)."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from django.contrib.auth.models import User
from django.db import transaction

from fleet.models.access import ROLES, give_role
from fleet.models.tokens import create_token, find_token

USERNAME = "demo"
_ROLE = "admin"


@dataclass(frozen=True, slots=True)
class DemoAccount:
    """Everything somebody, or a script, needs to get in."""

    url: str
    username: str
    password: str
    token: str


def kept(home: Path) -> DemoAccount | None:
    """What the last run wrote; None when there was none, or it cannot be read."""
    try:
        return DemoAccount(**json.loads(_path(home).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def ensure(home: Path, url: str, now: datetime) -> DemoAccount:
    """Make the user and the token, or find those of the last run, and write demo.json.

    An account that works already is left alone: a new password would end its sessions.
    """
    last = kept(home)
    with transaction.atomic():
        user, _made = User.objects.get_or_create(username=USERNAME)
        password = last.password if last else secrets.token_urlsafe(12)
        if not user.check_password(password):
            user.set_password(password)
        user.is_active = True
        user.save()
        give_role(user, _ROLE)
        owned = find_token(last.token, now) if last else None
        if last and owned is not None and owned.user == user:
            token = last.token
        else:
            _, token = create_token(user, "demo", ROLES[_ROLE], lifetime=None, now=now)
    account = DemoAccount(url=url, username=USERNAME, password=password, token=token)
    _write(home, account)
    return account


def _path(home: Path) -> Path:
    return home / "demo.json"


def _write(home: Path, account: DemoAccount) -> None:
    """Whole or not at all, and never readable by others, not even for an instant."""
    beside = home / "demo.json.new"
    beside.unlink(missing_ok=True)
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(account), file, indent=1)
        file.write("\n")
    beside.replace(_path(home))
