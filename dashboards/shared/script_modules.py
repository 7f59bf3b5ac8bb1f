"""Modules that a script imports: a page that names them requests all at once, not one level after the other."""

from __future__ import annotations

import functools
import re
from pathlib import Path, PurePosixPath

_STATIC_FOLDER = Path(__file__).resolve().parents[1] / "static"
_IMPORT = re.compile(r'^import\b[^"]*"\./([\w.-]+\.js)";', re.MULTILINE)


@functools.cache
def find_imported_modules(script: str) -> tuple[str, ...]:
    """Return the modules that a script imports, directly or not, as static paths: `dashboards/js/page.js`."""
    modules: dict[str, None] = {}
    pending = [script]
    while pending:
        path = pending.pop()
        folder = PurePosixPath(path).parent
        for name in _IMPORT.findall((_STATIC_FOLDER / path).read_text("utf-8")):
            module = str(folder / name)
            if module not in modules and module != script:
                modules[module] = None
                pending.append(module)
    return tuple(sorted(modules))
