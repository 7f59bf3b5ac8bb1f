from __future__ import annotations

import json
from pathlib import Path

from django.contrib.staticfiles import finders
from django.core.management import call_command
from pytest_django import Settings

from dashboards.wheel_assets import PlotlyFinder


def test_plotly_is_served_from_its_wheel() -> None:
    """The bundle, whole, and nothing else of the package."""
    asset_path = finders.find("plotly/plotly.min.js")
    assert isinstance(asset_path, str)
    assert Path(asset_path).stat().st_size > 1_000_000
    assert finders.find("plotly/widgetbundle.js") is None
    assert PlotlyFinder().find("plotly/nothing.js", find_all=True) == []


def test_plotly_is_listed_for_collectstatic() -> None:
    """Under its folder, so that collected and served addresses are the same."""
    ((name, storage),) = PlotlyFinder().list(None)
    assert (name, getattr(storage, "prefix", None)) == ("plotly.min.js", "plotly")
    assert Path(storage.path(name)).exists()


def test_collected_scripts_import_each_other_by_hash(settings: Settings, tmp_path: Path) -> None:
    """Collected, a script names the very version of the module it was collected with; nothing fails to be found."""
    settings.STATIC_ROOT = tmp_path
    settings.STORAGES = {
        **settings.STORAGES,
        "staticfiles": {"BACKEND": "dashboards.wheel_assets.CollectedStorage"},
    }
    call_command("collectstatic", interactive=False, verbosity=0)
    manifest = json.loads((tmp_path / "staticfiles.json").read_text())["paths"]
    script = (tmp_path / manifest["dashboards/js/fleet.js"]).read_text()
    assert Path(manifest["dashboards/js/live.js"]).name in script
    assert './live.js"' not in script
