"""Secrets at rest: encrypted with a key derived from SECRET_KEY, decrypted only where they are used.

docs/reference/alerts.md, "Notification channels".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings


class UnsealError(Exception):
    """Secrets cannot be decrypted: SECRET_KEY has changed since they were encrypted."""


def seal(secrets: Mapping[str, str]) -> str:
    """Return the secrets encrypted, with a time and an authentication tag."""
    return _fernet().encrypt(json.dumps(dict(secrets)).encode()).decode()


def unseal(ciphertext: str) -> dict[str, str]:
    """Return the secrets that `seal` encrypted. Raises UnsealError."""
    if not ciphertext:
        return {}
    try:
        secrets: Any = json.loads(_fernet().decrypt(ciphertext.encode()))
    except InvalidToken as error:
        raise UnsealError(
            "its secrets were encrypted with another REFLOAT_SECRET_KEY: enter the secrets again"
        ) from error
    return {str(name): str(secret) for name, secret in secrets.items()}


def _fernet() -> MultiFernet:
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    return MultiFernet([Fernet(_derive_key(str(key))) for key in keys])


def _derive_key(key: str) -> bytes:
    hkdf = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"refloat.sealed.1")
    return base64.urlsafe_b64encode(hkdf.derive(key.encode()))
