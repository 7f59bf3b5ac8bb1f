"""The source of a cluster with the code that polls it, loaded once per process."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from fleet.monitoring.sources.source import SourcePolling
from fleet.source_plugins.declaration import ClusterSource
from fleet.source_plugins.registry import DEFAULT_SOURCE, load_object, require_source


@dataclass(frozen=True, slots=True)
class LoadedSource:
    """A source, and what is polled at its clusters."""

    source: ClusterSource
    polling: SourcePolling


@functools.cache
def load_source(slug: str = DEFAULT_SOURCE) -> LoadedSource:
    """Return an installed source. Raises SourceNotInstalledError, SourceLoadError."""
    source = require_source(slug)
    return LoadedSource(source, load_object(source.polling, SourcePolling))
