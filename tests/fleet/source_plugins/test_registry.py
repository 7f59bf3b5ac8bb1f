"""Plug-ins of a folder on `sys.path`, good and bad ones."""

from __future__ import annotations

import secrets
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fleet.source_plugins import registry
from fleet.source_plugins.registry import (
    BUILT_IN,
    GROUP,
    InstalledSources,
    SourceNotInstalledError,
    installed_sources,
    label_of,
    load_sources,
    require_source,
    source_labels,
)

_DECLARATION = """
from dataclasses import replace
from fleet.source_plugins.refloat import SOURCE
{statement}
"""


class PlugIns:
    """Modules that a test wrote."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str, statement: str) -> EntryPoint:
        """Write a module with `statement` and return an entry point to its PLUGIN."""
        module = f"plugin_{secrets.token_hex(8)}"
        (self._folder / f"{module}.py").write_text(_DECLARATION.format(statement=statement))
        return EntryPoint(name, f"{module}:PLUGIN", GROUP)


@pytest.fixture
def plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlugIns:
    """No plug-in yet."""
    monkeypatch.syspath_prepend(tmp_path)
    return PlugIns(tmp_path)


def load(*points: EntryPoint) -> InstalledSources:
    """Load Refloat's own wire, then others."""
    return load_sources((BUILT_IN[0], *points))


def test_a_good_plug_in_is_beside_the_built_in_ones(plug_ins: PlugIns) -> None:
    installed = load(plug_ins.add("hubs", "PLUGIN = replace(SOURCE, slug='hubs', label='Hubs')"))
    assert {slug: source.label for slug, source in installed.by_slug.items()} == {
        "refloat": "Refloat",
        "hubs": "Hubs",
    }
    assert installed.problems == ()


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("raise RuntimeError('no\\nlicense')", "RuntimeError: no license."),
        (
            "import a_module_that_nobody_has",
            "ModuleNotFoundError: No module named 'a_module_that_nobody_has'.",
        ),
        ("def PLUGIN(: pass", "SyntaxError: "),
        ("raise SystemError()", "SystemError: "),
        ("OTHER = 1", "AttributeError: module"),
        ("PLUGIN = 'refloat'", "is not a ClusterSource."),
        ("PLUGIN = replace(SOURCE, slug='No Slug')", "'No Slug' is not a slug: "),
        ("PLUGIN = replace(SOURCE, slug='x' * 33)", "is not a slug: "),
        ("PLUGIN = replace(SOURCE, label='Other')", "the slug refloat belongs to Refloat."),
    ],
)
def test_a_bad_plug_in_is_one_line_and_disturbs_no_other(
    plug_ins: PlugIns, statement: str, problem: str
) -> None:
    """The plug-ins before and after it work."""
    first = plug_ins.add("first", "PLUGIN = replace(SOURCE, slug='first')")
    bad = plug_ins.add("bad", statement)
    last = plug_ins.add("last", "PLUGIN = replace(SOURCE, slug='last')")
    installed = load(first, bad, last)
    assert list(installed.by_slug) == ["refloat", "first", "last"]
    [line] = installed.problems
    assert line.startswith(f"The source plug-in bad ({bad.value}) cannot be used: ")
    assert problem in line
    assert "\n" not in line


def test_an_installed_package_repeats_the_built_in_sources() -> None:
    """Its entry points are the same, so their slugs are not taken twice."""
    assert load(*BUILT_IN).problems == ()


def test_sources_of_this_installation(caplog: pytest.LogCaptureFixture) -> None:
    """Refloat's own; the entry points are read once."""
    assert source_labels()["refloat"] == "Refloat"
    assert require_source("refloat").label == "Refloat"
    assert installed_sources() is installed_sources()
    assert not [record for record in caplog.records if record.name == registry.logger.name]


def test_a_source_that_is_not_installed_is_named() -> None:
    assert label_of("gone") == "gone"
    with pytest.raises(SourceNotInstalledError, match="The source gone is not installed"):
        require_source("gone")
