"""The documents cover what the program offers: settings, events, changes, targets."""

from __future__ import annotations

import re

import pytest

from tests.meta.house import ROOT, tracked

_READERS = r"env\.(?:text|switch|seconds|integer|items|choice|pairs|secret)\(\s*\"([A-Z_]+)\""
_EVENT = r"type: Literal\[\"([a-z_.]+)\"\]"


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _settings() -> list[str]:
    return sorted(
        {
            found
            for n in tracked()
            if n.startswith("dashboards/config/")
            for found in re.findall(_READERS, _read(n))
        }
    )


def test_settings_are_found() -> None:
    """The pattern still matches how settings are read."""
    assert "REDIS_URL" in _settings()


@pytest.mark.parametrize("name", _settings())
def test_setting_is_documented(name: str) -> None:
    """docs/settings.md has a row for every environment variable the settings read."""
    assert f"| `{name}` |" in _read("docs/settings.md")


def test_documented_settings_exist() -> None:
    """No row in docs/settings.md names a variable nobody reads."""
    documented = re.findall(r"^\| `([A-Z_]+)` \|", _read("docs/settings.md"), re.MULTILINE)

    assert set(documented) - {"FAULTS", "VENV"} <= set(_settings())


def test_changelog_begins_with_unreleased() -> None:
    """Every change has its line under *Unreleased*."""
    headings = re.findall(r"^## (.+)$", _read("CHANGELOG.md"), re.MULTILINE)

    assert headings
    assert headings[0] == "Unreleased"


def test_makefile_targets_are_in_the_readme_or_contributing() -> None:
    """Each public target is explained to a reader."""
    targets = re.findall(r"^([a-z-]+):.*## ", _read("Makefile"), re.MULTILINE)
    prose = _read("README.md") + _read("CONTRIBUTING.md")

    assert not [t for t in targets if t != "help" and f"make {t}" not in prose]


def test_links_between_documents_hold() -> None:
    """A relative link in a Markdown file leads to a file."""
    dead = [
        f"{name} -> {target}"
        for name in tracked()
        if name.endswith(".md")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", _read(name))
        if not ((ROOT / name).parent / target).exists()
    ]

    assert not dead, ", ".join(dead)
