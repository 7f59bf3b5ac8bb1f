"""docs/explanation/architecture.md draws the layers that the import contracts hold, and no folder outgrows its
listing."""

from __future__ import annotations

import re
import tomllib
from collections import Counter

from tests.meta.house import ROOT, tracked_paths

#: Modules of one folder; its listing is read at a glance.
_MOST_MODULES = 25
#: A step of a walk: a file and a function in it.
_STEP = re.compile(r"`([\w/-]+\.(?:py|js))`: `(?:\w+\.)?(\w+)`")


def _components_of(container: str) -> list[str]:
    """The lines of the block that follows the first sentence with the container's name and a colon."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
    block = re.search(rf"`{re.escape(container)}`:\n\n```\n(.*?)\n```", text, re.DOTALL)
    return block[1].splitlines() if block else []


def test_documented_layers_match_the_contracts() -> None:
    """Each layer contract has its block in the document, line by line."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    contracts = [table for table in settings["contracts"] if table["type"] == "layers"]
    assert contracts
    for contract in contracts:
        (container,) = contract["containers"]
        assert _components_of(container) == [
            layer.translate({40: None, 41: None}) for layer in contract["layers"]
        ]


def test_walks_name_functions_that_exist() -> None:
    """A step that the code no longer has would mislead the reader."""
    steps = _STEP.findall((ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8"))
    assert len(steps) > 20
    for path, name in steps:
        texts = [(ROOT / file).read_text("utf-8") for file in tracked_paths() if file.endswith(f"/{path}")]
        texts += [(ROOT / path).read_text("utf-8")] if (ROOT / path).is_file() else []
        assert any(re.search(rf"\b{name}\(", text) for text in texts), f"{path}: {name}"


def test_no_folder_has_too_many_modules() -> None:
    """Generated stubs and migrations are read by programs."""
    folders = Counter(
        name.rpartition("/")[0]
        for name in tracked_paths()
        if name.startswith(("fleet/", "dashboards/"))
        and name.endswith(".py")
        and not name.endswith("__init__.py")
        and not name.startswith(("fleet/wire/", "fleet/migrations/"))
    )
    assert [(folder, count) for folder, count in folders.items() if count > _MOST_MODULES] == []
