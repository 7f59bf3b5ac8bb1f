from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User

from fleet.models.access import Permission
from fleet.models.tokens import ApiToken, create_token, find_token
from tests.fakes.locked import database_locked, database_read_only

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def owner() -> User:
    return User.objects.create_user("owner")


def _make(owner: User, lifetime: timedelta | None = DAY) -> tuple[ApiToken, str]:
    return create_token(owner, "probe", [Permission.VIEW_FLEET], lifetime=lifetime, now=NOW)


def test_create_token_keeps_only_a_hash(owner: User) -> None:
    """The secret is found in no column, and finds its token."""
    token, secret = _make(owner)
    row = ApiToken.objects.values().get()
    # What is secret may hold an underscore too: all after the second one.
    assert secret.split("_", 2)[2] not in str(row)
    found_token = find_token(secret, NOW)
    assert found_token == token
    assert found_token.allows(Permission.VIEW_FLEET)
    assert not found_token.allows(Permission.MANAGE_ACCESS)


@pytest.mark.parametrize(
    "invalid_secret", ["", "rfl", "rfl_", "rfl__", "rfl_00000000_x", "Bearer x", "rfl_\x00_y"]
)
def test_find_token_returns_none_for_invalid_text(owner: User, invalid_secret: str) -> None:
    """Without an exception."""
    _make(owner)
    assert find_token(invalid_secret, NOW) is None


def test_find_token_returns_none_for_a_wrong_secret(owner: User) -> None:
    """The prefix alone opens nothing."""
    token, _secret = _make(owner)
    assert find_token(f"rfl_{token.prefix}_guess", NOW) is None


def test_find_token_returns_none_if_expired_revoked_or_owner_inactive(owner: User) -> None:
    """Each of the three ends it."""
    _token, secret = _make(owner)
    assert find_token(secret, NOW + DAY) is None
    owner.is_active = False
    owner.save()
    assert find_token(secret, NOW) is None
    owner.is_active = True
    owner.save()
    token = find_token(secret, NOW)
    assert token is not None
    token.revoke(NOW)
    token.revoke(NOW + DAY)
    assert token.revoked_at == NOW
    assert find_token(secret, NOW) is None


def test_token_without_expiry_stays_valid(owner: User) -> None:
    """No lifetime means no end."""
    _token, secret = _make(owner, None)
    assert find_token(secret, NOW + 10_000 * DAY) is not None


def test_last_use_is_stored_once_a_minute(owner: User) -> None:
    """A client that asks every second does not write every second."""
    token, secret = _make(owner)
    find_token(secret, NOW)
    find_token(secret, NOW + timedelta(seconds=59))
    token.refresh_from_db()
    assert token.last_used_at == NOW
    find_token(secret, NOW + timedelta(seconds=61))
    token.refresh_from_db()
    assert token.last_used_at == NOW + timedelta(seconds=61)


def test_token_is_found_while_the_database_is_read_only(
    owner: User, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk: the token works, and a warning is logged."""
    token, secret = _make(owner)
    with database_read_only():
        assert find_token(secret, NOW) == token
    assert f"the last use of the token {token.prefix} was not stored" in caplog.text
    token.refresh_from_db()
    assert token.last_used_at is None


@pytest.mark.django_db(transaction=True)
def test_token_is_found_while_another_writer_has_the_lock(owner: User) -> None:
    """The request does not wait for the lock, and is not refused for it."""
    token, secret = _make(owner)
    with database_locked():
        assert find_token(secret, NOW) == token
    find_token(secret, NOW)
    token.refresh_from_db()
    assert token.last_used_at == NOW
