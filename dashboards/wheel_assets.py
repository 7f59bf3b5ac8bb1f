"""Static files from installed packages: the bundle of plotly, so that neither a copy nor a CDN is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage
from typing_extensions import override

from fleet.installation import folder_of_package

#: The full bundle draws heatmaps without 'unsafe-eval' (only scattergl needs it).
BUNDLE = "plotly.min.js"


class PlotlyFinder(BaseFinder):
    """Finds `plotly/plotly.min.js` in the plotly package, without importing plotly, which takes 0.3 s."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.storage = FileSystemStorage(location=folder_of_package("plotly") / "package_data")
        self.storage.prefix = "plotly"  # type: ignore[attr-defined] # dashboards.static_assets reads it

    @override
    def find(self, path: str, find_all: bool = False, **_: Any) -> Any:
        """Return the path of the bundle, if `path` names it."""
        if path != f"plotly/{BUNDLE}":
            return []  # Django would take None for a result
        bundle_path = self.storage.path(BUNDLE)
        return [bundle_path] if find_all else bundle_path

    @override
    def list(self, ignore_patterns: Iterable[str] | None) -> Iterator[tuple[str, FileSystemStorage]]:
        """Yield the bundle, for dashboards.static_assets."""
        yield BUNDLE, self.storage
