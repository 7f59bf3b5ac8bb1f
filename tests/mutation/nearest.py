"""The tests nearest to a module: its own test file, those that import it or its package, and those beside its own."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path

from tests.mutation.areas import ROOT

#: Test files that run for a mutant.
MAX_FILES = 10


def find_nearest_tests(module: str) -> list[str]:
    """Return the test files of a module, its own first; of the others, those that share most folders with it first."""
    own_path = Path("tests", module).with_name(f"test_{Path(module).name}")
    own_paths = [str(own_path)] if (ROOT / own_path).is_file() else []
    name = module.removesuffix(".py").replace("/", ".")
    paths = [*own_paths, *_sort_by_place(_index_importers()[name], module)]
    # A package with an interface hides its modules from the tests that use it.
    if "import" in (ROOT / module).with_name("__init__.py").read_text():
        paths += _sort_by_place(_index_importers()[name.rpartition(".")[0]], module)
    neighbours = sorted(str(path.relative_to(ROOT)) for path in (ROOT / own_path.parent).glob("test_*.py"))
    return list(dict.fromkeys([*paths, *neighbours]))[:MAX_FILES]


def _sort_by_place(paths: Iterable[str], module: str) -> list[str]:
    return sorted(paths, key=lambda path: (-_count_shared_folders(path, module), path))


def _count_shared_folders(test_path: str, module: str) -> int:
    pairs = zip(Path(test_path).parts[1:], Path(module).parts, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


@cache
def _index_importers() -> Mapping[str, Sequence[str]]:
    """Return the test files by the module that they import."""
    importers = defaultdict[str, list[str]](list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        # These take minutes, whatever is broken.
        if {"browser", "flow", "meta"} & set(path.parts):
            continue
        for name in set(_imported_names(ast.parse(path.read_text()))):
            importers[name].append(str(path.relative_to(ROOT)))
    return importers


def _imported_names(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that a file imports, and what it imports from them, which may be modules too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
