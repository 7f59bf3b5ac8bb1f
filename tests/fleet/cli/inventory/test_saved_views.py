from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, run_console

_VIEW: dict[str, Any] = {
    "id": 7, "name": "night", "owner": "ada", "is_shared": True, "q": "state:stranded", "group": "", "sort": "",
    "columns": "", "path": "/agents/?q=state:stranded", "updated_at": "2026-11-23T10:14:07Z",
}  # fmt: skip
_PATH = "/api/v1/agent-views"


def _run(console: FakeConsole, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["views", *arguments, "--url", console.url, "--token", TOKEN])


def test_views_are_listed() -> None:
    """With whose they are; without any, a sentence."""
    with run_console() as console:
        console.responses[_PATH] = (200, {"views": [_VIEW, _VIEW | {"name": "mine", "is_shared": False}]})
        lines = [line.split() for line in _run(console, "list").output.splitlines()]
        assert lines[1:] == [
            ["7", "night", "shared", "ada", "state:stranded"],
            ["7", "mine", "private", "ada", "state:stranded"],
        ]
        console.responses[_PATH] = (200, {"views": []})
        assert _run(console, "list").output == "no saved views\n"


def test_view_is_saved_changed_and_deleted() -> None:
    with run_console() as console:
        console.responses |= {
            _PATH: (200, _VIEW),
            f"{_PATH}/7": (200, _VIEW | {"is_shared": False}),
            f"{_PATH}/7/delete": (200, _VIEW),
        }
        command = _run(console, "save", "night", "--search", "state:stranded", "--group", "cause", "--shared")
        assert command.output == "view night (7) is shared\n"
        assert _run(console, "change", "7", "--private").output == "view night (7) is private\n"
        assert _run(console, "delete", "7").output == "view night deleted\n"
        assert _run(console, "change", "7").exit_code == 2
