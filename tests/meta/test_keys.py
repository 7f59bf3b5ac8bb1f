"""Every script that handles keys declares them, so that ? lists them."""

from __future__ import annotations

from tests.meta.house import ROOT

_SCRIPTS = ROOT / "dashboards" / "static" / "dashboards" / "js"
#: Scripts whose keys are those of the browser: Escape and Enter in fields, menus and dialogs.
_STANDARD_KEYS = frozenset(
    {"dialogs.js", "page.js", "palette.js", "silence.js", "keys.js", "cluster-menu.js"}
)


def test_scripts_that_handle_keys_declare_them() -> None:
    """By `declareKeys` of js/keys.js, or they are named here."""
    handlers = [
        path
        for path in sorted(_SCRIPTS.glob("*.js"))
        if 'addEventListener("keydown"' in path.read_text("utf-8")
    ]
    assert len(handlers) > 5
    undeclared = [
        path.name
        for path in handlers
        if path.name not in _STANDARD_KEYS and "declareKeys(" not in path.read_text("utf-8")
    ]
    assert not undeclared, undeclared
