"""The demo's user and API token, kept between runs in REFLOAT_HOME/demo.json (readable by its owner alone)."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from django.contrib.auth.models import User
from django.db import transaction

from fleet.models.access import ROLES, give_role
from fleet.models.tokens import create_token, find_token
from fleet.processes import folders

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
    folders.write_private(_path(home), json.dumps(asdict(account), indent=1) + "\n")
    return account


def _path(home: Path) -> Path:
    return home / "demo.json"
