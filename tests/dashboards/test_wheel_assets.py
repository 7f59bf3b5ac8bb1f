from __future__ import annotations

from pathlib import Path

from django.contrib.staticfiles import finders

from dashboards.wheel_assets import PlotlyFinder


def test_plotly_is_served_from_its_wheel() -> None:
    """The bundle, whole, and nothing else of the package."""
    asset_path = finders.find("plotly/plotly.min.js")
    assert isinstance(asset_path, str)
    assert Path(asset_path).stat().st_size > 1_000_000
    assert finders.find("plotly/widgetbundle.js") is None
    assert PlotlyFinder().find("plotly/nothing.js", find_all=True) == []


def test_plotly_is_listed() -> None:
    """Under its folder, so that its address has the hash of the bundle."""
    ((name, storage),) = PlotlyFinder().list(None)
    assert (name, getattr(storage, "prefix", None)) == ("plotly.min.js", "plotly")
    assert Path(storage.path(name)).exists()
