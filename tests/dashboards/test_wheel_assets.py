from __future__ import annotations

from pathlib import Path

from django.contrib.staticfiles import finders

from dashboards.wheel_assets import PlotlyFinder


def test_plotly_is_found_in_its_wheel() -> None:
    """The bundle, whole, and nothing else of the package."""
    found = finders.find("plotly/plotly.min.js")
    assert isinstance(found, str)
    assert Path(found).stat().st_size > 1_000_000
    assert finders.find("plotly/widgetbundle.js") is None
    assert PlotlyFinder().find("plotly/nothing.js", find_all=True) == []


def test_plotly_is_listed_for_collectstatic() -> None:
    """Under its folder, so that collected and served addresses are the same."""
    ((name, storage),) = PlotlyFinder().list(None)
    assert (name, getattr(storage, "prefix", None)) == ("plotly.min.js", "plotly")
    assert Path(storage.path(name)).exists()
