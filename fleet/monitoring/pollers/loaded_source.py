"""The source of a cluster with the code that polls it, loaded once per process."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass

from fleet.monitoring.sources.source import SourcePolling
from fleet.source_plugins.declaration import ClusterSource
from fleet.source_plugins.registry import (
    DEFAULT_SOURCE,
    SourceLoadError,
    SourceNotInstalledError,
    load_object,
    require_source,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedSource:
    """A source, and what is polled at its clusters."""

    source: ClusterSource
    polling: SourcePolling


@functools.cache
def find_loaded_source(slug: str) -> LoadedSource | None:
    """Return an installed source; None, with one line in the log of this process, if it cannot be used."""
    try:
        return load_source(slug)
    except (SourceNotInstalledError, SourceLoadError) as error:
        logger.warning("clusters of the source %s are not polled: %s", slug, error)
        return None


@functools.cache
def load_source(slug: str = DEFAULT_SOURCE) -> LoadedSource:
    """Return an installed source. Raises SourceNotInstalledError, SourceLoadError."""
    source = require_source(slug)
    return LoadedSource(source, load_object(source.polling, SourcePolling))
