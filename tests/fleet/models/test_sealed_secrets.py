from __future__ import annotations

import pytest
from pytest_django import Settings

from fleet.models.sealed_secrets import UnsealError, seal, unseal


def test_sealed_secrets_are_unreadable_and_can_be_unsealed() -> None:
    """The database contains no plain text."""
    sealed_text = seal({"url": "slack://token-a/token-b"})
    assert "token" not in sealed_text
    assert unseal(sealed_text) == {"url": "slack://token-a/token-b"}
    assert unseal("") == {}


def test_secrets_sealed_with_a_fallback_key_can_be_unsealed(settings: Settings) -> None:
    """Keys can be changed without losing channels."""
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "old", []
    sealed_text = seal({"a": "b"})
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new", ["old"]
    assert unseal(sealed_text) == {"a": "b"}
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(UnsealError, match="REFLOAT_SECRET_KEY"):
        unseal(sealed_text)
