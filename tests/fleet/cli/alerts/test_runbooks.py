from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, run_console

_NO_TEXT = {"text": "", "version": "v0", "updated_at": None, "updated_by": ""}
_RUNBOOK: dict[str, Any] = {
    "cause": "auth", "label": "Auth failed", "meaning": "An auth is not responding.", "diagnosis": ["Check the auth."],
    "remedies": ["Move the agents.", "Repair the auth."], "cluster_text": _NO_TEXT,
    "installation_text": _NO_TEXT | {"text": "Call Ada."},
}  # fmt: skip
_PATH = "/api/v1/runbooks"


def _run(console: FakeConsole, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(
        main, ["runbooks", *arguments, "--url", console.url, "--token", TOKEN], input=stdin
    )


def test_runbooks_are_listed() -> None:
    """With whose custom text the cluster shows."""
    other_runbooks = [
        _RUNBOOK | {"cause": "proxy", "cluster_text": _NO_TEXT | {"text": "x"}},
        _RUNBOOK | {"cause": "drift", "installation_text": _NO_TEXT},
    ]
    with run_console() as console:
        console.responses[_PATH] = (200, {"runbooks": [_RUNBOOK, *other_runbooks]})
        lines = _run(console, "list").output.splitlines()
    assert [line.partition("Auth failed")[2].strip() for line in lines[1:]] == [
        "whole installation",
        "cluster",
        "",
    ]


def test_runbook_is_shown_as_text() -> None:
    """Built-in steps with numbers, and the custom text."""
    with run_console() as console:
        console.responses[f"{_PATH}/auth"] = (200, _RUNBOOK)
        output = _run(console, "show", "auth").output
    assert output == (
        "Auth failed\nAn auth is not responding.\n\nDiagnosis\n1. Check the auth.\n\nRemedies\n1. Move the agents.\n"
        "2. Repair the auth.\n\nCustom text (whole installation)\nCall Ada.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "body", "output"),
    [
        (["Call Bo."], {"text": "Call Bo.", "scope": "cluster"}, "for cluster default removed"),
        (["--file", "-"], {"text": "from stdin", "scope": "cluster"}, "for cluster default removed"),
        (
            ["--remove", "--all-clusters", "--version", "v0"],
            {"text": "", "scope": "installation", "version": "v0"},
            "for the whole installation saved",
        ),
    ],
)
def test_custom_text_is_set(arguments: list[str], body: dict[str, str], output: str) -> None:
    """From the command line, from a file, or removed; the output says what is stored."""
    with run_console() as console:
        console.responses[f"{_PATH}/auth"] = (200, _RUNBOOK)
        outcome = _run(console, "set", "auth", *arguments, stdin="from stdin")
    assert console.posts[0][1] == body
    assert output in outcome.output


def test_text_is_given_once(tmp_path: Path) -> None:
    """And the cause is one of the runbooks."""
    file = tmp_path / "text"
    file.write_text("x", encoding="utf-8")
    with run_console() as console:
        for arguments in (["auth"], ["auth", "x", "--file", str(file)], ["auth", "x", "--remove"]):
            outcome = _run(console, "set", *arguments)
            assert (outcome.exit_code, "exactly one of TEXT" in outcome.output) == (2, True)
        assert "'auth', 'proxy'," in _run(console, "show", "none").output
    assert console.posts == []
