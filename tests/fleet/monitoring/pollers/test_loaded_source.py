from __future__ import annotations

import secrets

import pytest

from fleet.monitoring.pollers.loaded_source import find_loaded_source, load_source
from fleet.monitoring.sources.refloat import POLLING
from fleet.source_plugins.registry import SourceNotInstalledError


def test_refloat_is_the_default() -> None:
    assert load_source() is load_source()
    assert load_source().polling is POLLING


def test_a_source_that_is_not_installed_is_an_error() -> None:
    with pytest.raises(SourceNotInstalledError, match="gone"):
        load_source("gone")


def test_a_source_that_cannot_be_used_is_one_line_per_process(caplog: pytest.LogCaptureFixture) -> None:
    """Rounds ask for it every few seconds."""
    slug = f"gone-{secrets.token_hex(4)}"
    assert [find_loaded_source(slug) for _ in range(3)] == [None] * 3
    [record] = [record for record in caplog.records if slug in record.getMessage()]
    assert record.getMessage().startswith(f"clusters of the source {slug} are not polled: The source")
    assert find_loaded_source("refloat") is load_source("refloat")
