from __future__ import annotations

import pytest
from pytest_django import Settings

from fleet.models.sealed_secrets import SealError, seal, unseal


def test_sealed_secrets_open_again_and_are_not_readable() -> None:
    """Nothing of them stands in the database."""
    sealed = seal({"url": "slack://token-a/token-b"})
    assert "token" not in sealed
    assert unseal(sealed) == {"url": "slack://token-a/token-b"}
    assert unseal("") == {}


def test_sealed_with_an_older_key_opens_while_it_is_a_fallback(settings: Settings) -> None:
    """Keys can be changed without losing channels."""
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "old", []
    sealed = seal({"a": "b"})
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new", ["old"]
    assert unseal(sealed) == {"a": "b"}
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(SealError, match="REFLOAT_SECRET_KEY"):
        unseal(sealed)
