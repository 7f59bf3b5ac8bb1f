from __future__ import annotations

from fleet.management.commands import console, serve


def test_serve_is_the_console() -> None:
    assert serve.Command is console.Command
