"""The documents cover what the program offers: settings, events, changes, targets."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest

from fleet.cli.main import main
from fleet.monitoring.events import Event
from fleet.nodes.__main__ import main as nodes
from tests.meta.house import ROOT, tracked_paths

_READERS = r"env\.(?:text|switch|seconds|integer|string_list|choice|pairs|secret)\(\s*\"([A-Z_]+)\""


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _settings() -> list[str]:
    return sorted(
        {
            setting
            for n in tracked_paths()
            if n.startswith("dashboards/config/")
            for setting in re.findall(_READERS, _read(n))
        }
    )


def test_settings_are_found() -> None:
    """The pattern still matches how settings are read."""
    assert "REDIS_URL" in _settings()


@pytest.mark.parametrize("name", _settings())
def test_setting_is_documented(name: str) -> None:
    """docs/reference/settings.md has a row for every environment variable the settings read."""
    assert f"| `{name}` |" in _read("docs/reference/settings.md")


def test_documented_settings_exist() -> None:
    """No row in docs/reference/settings.md names a variable nobody reads."""
    documented = re.findall(r"^\| `([A-Z_]+)` \|", _read("docs/reference/settings.md"), re.MULTILINE)

    assert set(documented) - {"FAULTS", "VENV"} <= set(_settings())


def test_changelog_begins_with_unreleased() -> None:
    """Every change has its line under *Unreleased*."""
    headings = re.findall(r"^## (.+)$", _read("CHANGELOG.md"), re.MULTILINE)

    assert headings
    assert headings[0] == "[Unreleased]"


def test_changelog_has_the_sections_of_keep_a_changelog() -> None:
    """Breaking changes are at the top of *Changed*."""
    entries = re.sub(r".*?^## ", "", _read("CHANGELOG.md"), count=1, flags=re.DOTALL | re.MULTILINE)
    sections = re.findall(r"^### (.+)\n\n((?:- .+\n)+)", entries, re.MULTILINE)
    breaking = [[line.startswith("- **Breaking:** ") for line in lines.splitlines()] for _, lines in sections]

    assert [title for title, _ in sections] == ["Added", "Changed", "Removed", "Fixed", "Security"]
    assert breaking[1] == sorted(breaking[1], reverse=True)
    assert not any(any(section) for section in (breaking[0], *breaking[2:]))


def test_makefile_targets_are_in_the_readme_or_contributing() -> None:
    """Each public target is explained to a reader."""
    targets = re.findall(r"^([a-z-]+):.*## ", _read("Makefile"), re.MULTILINE)
    prose = _read("README.md") + _read("CONTRIBUTING.md")

    assert not [t for t in targets if t != "help" and f"make {t}" not in prose]


def _anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_documents_hold() -> None:
    """A relative link in a Markdown file leads to a file, and to a heading of it."""
    dead = []
    for name in (name for name in tracked_paths() if name.endswith(".md")):
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", _read(name)):
            page = (ROOT / name).parent / target if target else ROOT / name
            if not page.exists() or (anchor and anchor not in _anchors(page)):
                dead.append(f"{name} -> {target}#{anchor}")

    assert not dead, ", ".join(dead)


#: A page that code names, and the heading that it quotes: `docs/PAGE.md, "Heading"`.
_REFERENCE = re.compile(r"(?<![\w/])(docs/[\w/.-]+\.md)(?:,?\s+#?\s*[\"*]([A-Z][^\"*\n]{2,50})[\"*])?")


def test_references_from_code_hold() -> None:
    """Docstrings, comments and templates name pages that exist, and headings of them."""
    dead = []
    for name in tracked_paths():
        if name.startswith(("docs/", "CHANGELOG", "tests/meta/")) or not (ROOT / name).is_file():
            continue
        for page, heading in _REFERENCE.findall((ROOT / name).read_text(encoding="utf-8", errors="replace")):
            headings = re.findall(r"^#+ (.+)$", _read(page), re.MULTILINE) if (ROOT / page).exists() else None
            if headings is None or (heading and heading not in headings):
                dead.append(f"{name} -> {page} {heading}")

    assert not dead, ", ".join(dead)


def test_index_leads_to_every_document() -> None:
    """Every page of docs/ is linked from the index."""
    pages = {name.removeprefix("docs/") for name in tracked_paths() if re.fullmatch(r"docs/.+\.md", name)} - {
        "index.md"
    }

    assert not {page for page in pages if f"]({page})" not in _read("docs/index.md")}


def test_site_lists_every_document() -> None:
    """mkdocs.yml has the pages that docs/ has."""
    pages = {name.removeprefix("docs/") for name in tracked_paths() if re.fullmatch(r"docs/.+\.md", name)}

    assert set(re.findall(r"\S+\.md", _read("mkdocs.yml"))) == pages


#: Flags of programs of others, which documents name.
_FOREIGN_FLAGS = frozenset(
    {
        *("--from-literal", "--home-dir", "--now", "--set", "--shell", "--system"),
        *("--bind", "--descriptor_set_out", "--find-links", "--include_imports", "--no-index"),
        *("--diag-addr", "--format", "--out", "--roles", "--ttl"),
        *("--proxy-cacert", "--proxy-cert", "--proxy-key", "--proxy-user", "--proxytunnel"),
    }
)


def _flags_of(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from _flags_of(subcommand)


def test_documented_flags_exist() -> None:
    """No document names a flag that none of our programs takes."""
    sources = (
        _read(name)
        for name in tracked_paths()
        if re.match(
            r"(fleet/management|tests/bench|tests/mutation|tests/pictures|tests/soak|manage)\b.*\.py", name
        )
    )
    literals = {flag for source in sources for flag in re.findall(r"\"(--[a-z][\w-]*)\"", source)}
    flags = {*literals, *_FOREIGN_FLAGS, "--help", "--version", *_flags_of(main), *_flags_of(nodes)}
    absent = {
        f"{name}: {flag}"
        for name in tracked_paths()
        if name.endswith(".md") and name != "CHANGELOG.md"
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", _read(name))
        if flag not in flags
    }

    assert not absent, ", ".join(sorted(absent))


def _events() -> list[str]:
    return re.findall(r"\"type\": \"([a-z]+)\"", _read("fleet/monitoring/publish.py"))


def test_events_are_found() -> None:
    """One spelling on the wire for each event there is."""
    assert len(set(_events())) == len(get_args(Event))


@pytest.mark.parametrize("event", _events())
def test_event_is_documented(event: str) -> None:
    """docs/reference/live.md has a row for each event."""
    assert f"| `{event}` |" in _read("docs/reference/live.md").partition("## Messages")[0]


def _distribution(requirement: str) -> str:
    return re.split(r"[\[<>=;! ]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_dependencies_have_reasons() -> None:
    """Each package we ask for is in docs/decisions/0002-dependencies.md, with what it is for."""
    dependencies = tomllib.loads(_read("pyproject.toml"))["project"]["dependencies"]
    decision_text = _read("docs/decisions/0002-dependencies.md").lower()

    assert not [name for name in map(_distribution, dependencies) if name not in decision_text]


def test_dependencies_are_pinned() -> None:
    """constraints.txt has the exact version of everything pyproject.toml asks for."""
    project = tomllib.loads(_read("pyproject.toml"))["project"]
    requirements = [
        *project["dependencies"],
        *(requirement for extra in project["optional-dependencies"].values() for requirement in extra),
    ]
    pinned = {
        _distribution(line) for line in _read("constraints.txt").splitlines() if not line.startswith("#")
    }

    assert not [name for name in map(_distribution, requirements) if name not in pinned]
