"""Modules that a page requests in advance."""

from __future__ import annotations

from dashboards.shared.script_modules import find_imported_modules


def test_imports_are_followed() -> None:
    """Once each, without the script itself."""
    modules = find_imported_modules("dashboards/js/map.js")
    assert "dashboards/js/map-scene.js" in modules
    assert "dashboards/js/map-blocks.js" in modules
    assert "dashboards/js/map.js" not in modules
    assert len(modules) == len(set(modules))


def test_a_module_without_imports() -> None:
    """Nothing to request."""
    assert find_imported_modules("dashboards/js/map-theme.js") == ()
