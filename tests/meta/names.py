"""Identifiers that are no names: `python -m tests.meta.names` lists them.

A value has a noun, a function a verb. `non_names.txt` holds participles, pronouns and words that fit anything; a name
may contain one (`is_closed`, `next_value`), but not be one.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NON_NAMES = frozenset(Path(__file__).with_name("non_names.txt").read_text("utf-8").split())
#: Names that an interface of a library prescribes, and members of enumerations whose slugs are part of the API.
_PRESCRIBED = frozenset(
    {
        *(("fleet/transport/retry/futures.py", name) for name in ("done", "result", "running")),
        ("fleet/vocabulary/incidents.py", "INFO"),
        ("fleet/vocabulary/instances.py", "GONE"),
    }
)


@dataclass(frozen=True, slots=True)
class Binding:
    """A place where a Python file gives a name."""

    name: str
    line: int


def bindings(tree: ast.AST) -> Iterator[Binding]:
    """Yield every class, function, parameter, variable, attribute and alias that a module binds."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield Binding(node.name, node.lineno)
            case ast.arg():
                yield Binding(node.arg, node.lineno)
            case ast.Name(ctx=ast.Store()):
                yield Binding(node.id, node.lineno)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), ctx=ast.Store()):
                yield Binding(node.attr, node.lineno)
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield Binding(name, node.lineno)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield Binding(name, node.lineno)


def non_names(source: str) -> Iterator[Binding]:
    """Yield the bindings of a module whose whole name is on the list.

    Constants and members of enumerations may be participles: states are (`EXPIRED`, `FAILED`).
    """
    for binding in bindings(ast.parse(source)):
        bare_name = binding.name.strip("_")
        is_state = bare_name.isupper() and bare_name.endswith(("ED", "ING", "EN"))
        if bare_name.lower() in NON_NAMES and not is_state:
            yield binding


def modules() -> list[Path]:
    """Return the modules of `fleet` and `dashboards`, without generated stubs and migrations."""
    return [
        path
        for folder in ("fleet", "dashboards")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not {"wire", "migrations", "__pycache__"} & set(path.relative_to(ROOT).parts)
    ]


def findings() -> list[str]:
    """Return a line `path:line: name` for each non-name in the product and its tests."""
    return [
        f"{path.relative_to(ROOT)}:{binding.line}: {binding.name}"
        for path in [*modules(), *sorted((ROOT / "tests").rglob("*.py"))]
        for binding in non_names(path.read_text("utf-8"))
        if (str(path.relative_to(ROOT)), binding.name) not in _PRESCRIBED
    ]


def short_docstrings() -> list[str]:
    """Return a line for each docstring of four words or fewer whose words are those of the name beside it."""
    return [line for path in modules() for line in _repetitions(path)]


def _repetitions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        docstring = ast.get_docstring(node) or ""
        is_short = 0 < len(docstring.split()) <= 4
        if is_short and _vocabulary_of(docstring) <= _vocabulary_of(node.name) | _FILLERS:
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}: {docstring}"


def shared_class_names() -> list[str]:
    """Return a line for each class name that several modules define and that `_SHARED_CLASSES` does not allow."""
    modules_by_class = defaultdict(list)
    for path in modules():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                modules_by_class[node.name].append(str(path.relative_to(ROOT)))
    return [
        f"{name}: {', '.join(paths)}"
        for name, paths in sorted(modules_by_class.items())
        if len(paths) > 1 and name not in _SHARED_CLASSES
    ]


#: Django prescribes the first. The others are a table in `fleet.models` and the value that the program uses,
#: or the two ends of a tunnel: their packages tell them apart.
_SHARED_CLASSES = frozenset(
    {"Command", "Agent", "AgentChange", "Incident", "Instance", "Route", "Silence", "Tunnel"}
)
_FILLERS = frozenset({"a", "an", "the", "its", "it", "of", "to", "and", "return", "returns"})


def _vocabulary_of(text: str) -> set[str]:
    spaced = "".join(f" {letter}" if letter.isupper() else letter for letter in text)
    plain = "".join(letter.lower() if letter.isalnum() else " " for letter in spaced)
    return {part.removesuffix("s") for part in plain.split()}


if __name__ == "__main__":
    lines = findings() + short_docstrings() + shared_class_names()
    print("\n".join(lines))
    sys.exit(bool(lines))
