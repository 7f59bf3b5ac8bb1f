"""Installed sources: the entry points of the group `refloat.sources`, read once per process.

A plug-in that cannot be loaded is a problem with one line, in the log and in `refloat doctor`; the others work.
"""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from fleet.source_plugins.declaration import ClusterSource

logger = logging.getLogger(__name__)

GROUP = "refloat.sources"
#: Refloat's own, also in pyproject.toml: a checkout that was not installed again has no entry points for them.
BUILT_IN = (
    EntryPoint("refloat", "fleet.source_plugins.refloat:SOURCE", GROUP),
    EntryPoint("teleport", "fleet.source_plugins.teleport:SOURCE", GROUP),
    EntryPoint("nats", "fleet.source_plugins.nats:SOURCE", GROUP),
)
DEFAULT_SOURCE = "refloat"
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
#: Characters of a foreign error that a line has.
_MAX_ERROR_LENGTH = 300
ObjectT = TypeVar("ObjectT")


class SourceLoadError(Exception):
    """A plug-in, or a part of it, cannot be used; the text says why."""


class SourceNotInstalledError(Exception):
    """The plug-in of a cluster's source is not installed, or cannot be loaded."""

    def __init__(self, slug: str) -> None:
        super().__init__(describe_missing_source(slug))


@dataclass(frozen=True, slots=True)
class InstalledSources:
    """The sources by slug, and one line for each plug-in that cannot be used."""

    by_slug: Mapping[str, ClusterSource]
    problems: tuple[str, ...] = ()


@functools.cache
def installed_sources() -> InstalledSources:
    """Return the installed sources, Refloat's own first; problems are logged at the first call."""
    installed = load_sources((*BUILT_IN, *entry_points(group=GROUP)))
    for problem in installed.problems:
        logger.warning("%s", problem)
    return installed


def load_sources(points: Iterable[EntryPoint]) -> InstalledSources:
    """Return the sources of entry points. Of two with one slug the first one counts."""
    by_slug: dict[str, ClusterSource] = {}
    problems: list[str] = []
    for point in dict.fromkeys((point.name, point.value) for point in points):
        name, path = point
        try:
            source = load_object(path, ClusterSource)
            if not is_slug(source.slug):
                raise SourceLoadError(
                    f"{source.slug!r:.50} is not a slug: use lowercase letters, digits and hyphens"
                )
            if source.slug in by_slug:
                raise SourceLoadError(f"the slug {source.slug} belongs to {by_slug[source.slug].label}")
        except SourceLoadError as error:
            problems.append(f"The source plug-in {name} ({path}) cannot be used: {error}.")
        else:
            by_slug[source.slug] = source
    return InstalledSources(by_slug, tuple(problems))


def load_object(path: str, expected_type: type[ObjectT]) -> ObjectT:
    """Return the object at `module:object`. Raises SourceLoadError also for every error of the module."""
    module_name, _, attribute = path.partition(":")
    try:
        found_object: Any = import_module(module_name)
        for part in attribute.split("."):
            found_object = getattr(found_object, part)
    except Exception as error:  # of foreign code, which may raise anything; it must not disturb other sources
        text = " ".join(str(error).split())[:_MAX_ERROR_LENGTH].rstrip(".")
        raise SourceLoadError(f"{type(error).__name__}: {text}") from error
    if not isinstance(found_object, expected_type):
        raise SourceLoadError(f"{path} is not a {expected_type.__name__}")
    return found_object


def is_slug(text: str) -> bool:
    """Return whether a text can be the slug of a source."""
    return _SLUG.fullmatch(text) is not None


def find_source(slug: str) -> ClusterSource | None:
    """Return an installed source; None without one."""
    return installed_sources().by_slug.get(slug)


def require_source(slug: str) -> ClusterSource:
    """Return an installed source. Raises SourceNotInstalledError."""
    source = find_source(slug)
    if source is None:
        raise SourceNotInstalledError(slug)
    return source


def source_labels() -> dict[str, str]:
    """Return the labels of the installed sources by slug."""
    return {slug: source.label for slug, source in installed_sources().by_slug.items()}


def label_of(slug: str) -> str:
    """Return the label of a source; of one that is not installed, its slug."""
    source = find_source(slug)
    return slug if source is None else source.label


def describe_missing_source(slug: str) -> str:
    """Return that a source is not installed, and what to do, without the full stop."""
    return (
        f"The source {slug} is not installed, so Refloat does not poll this cluster. Install its plug-in on each "
        "machine where Refloat runs, or choose another product"
    )
