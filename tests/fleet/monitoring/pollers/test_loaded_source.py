from __future__ import annotations

import pytest

from fleet.monitoring.pollers.loaded_source import load_source
from fleet.monitoring.sources.refloat import POLLING
from fleet.source_plugins.registry import SourceNotInstalledError


def test_refloat_is_the_default() -> None:
    assert load_source() is load_source()
    assert load_source().polling is POLLING


def test_a_source_that_is_not_installed_is_an_error() -> None:
    with pytest.raises(SourceNotInstalledError, match="gone"):
        load_source("gone")
