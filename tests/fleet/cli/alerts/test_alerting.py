from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, run_console

_PLAN: dict[str, Any] = {
    "fingerprint": "f1", "is_confirmation_required": False,
    "changes": [
        {"action": "add", "kind": "channel", "name": "ops", "cluster": "eu",
         "fields": [{"field": "kind", "before": "", "after": "webhook"}]},
        {"action": "change", "kind": "rule", "name": "Agents stranded", "cluster": "",
         "fields": [{"field": "repeat_interval", "before": "4 h", "after": "1 h"}]},
        {"action": "remove", "kind": "route", "name": "Everything > night", "cluster": "", "fields": []},
    ],
}  # fmt: skip
_DIFF = """\
+ channel ops (cluster eu)
    kind: webhook
~ rule Agents stranded
    repeat_interval: 4 h → 1 h
- route Everything > night
1 added, 1 changed, 1 removed. What the file does not name is kept.
"""
_PATH = "/api/v1/alerting"


def _run(console: FakeConsole, *arguments: str, stdin: str = "") -> Result:
    command = ["alerting", *arguments, "--url", console.url, "--token", TOKEN]
    return CliRunner().invoke(main, command, input=stdin)


def test_configuration_is_exported_to_a_file_or_standard_output(tmp_path: Path) -> None:
    """As it is."""
    with run_console() as console:
        console.responses[_PATH] = (200, {"document": "rules: []\n"})
        assert _run(console, "export").output == "rules: []\n"
        assert "written to" in _run(console, "export", f"{tmp_path}/a.yaml").output
        assert "cannot be written" in _run(console, "export", f"{tmp_path}/no/a.yaml").output
    assert (tmp_path / "a.yaml").read_text() == "rules: []\n"


def test_import_shows_the_changes_and_applies_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variables of the environment that the file refers to, by the fingerprint of the plan."""
    monkeypatch.setenv("HOOK_URL", "https://hooks.example.com/s3cret")
    file = tmp_path / "a.yaml"
    file.write_text("channels: [{url: '${HOOK_URL}', token: '${REFLOAT_NO_SUCH_VARIABLE}'}]")
    with run_console() as console:
        console.responses[f"{_PATH}/plan"] = (200, _PLAN)
        console.responses[f"{_PATH}/apply"] = (200, _PLAN)
        assert _run(console, "import", str(file), "--dry-run", "--prune").output == _DIFF.replace(
            "What the file does not name is kept", "Sections that the file does not have are kept"
        )
        body = {
            "document": file.read_text(),
            "variables": {"HOOK_URL": "https://hooks.example.com/s3cret"},
            "prune": True,
        }
        assert console.posts[0][:2] == (f"{_PATH}/plan", body)
        refusal = _run(console, "import", str(file))
        assert refusal.exit_code == 2
        assert "Apply 1 added, 1 changed, 1 removed? Add --yes to confirm." in refusal.output
        outcome = _run(console, "import", str(file), "--yes")
        assert outcome.output == f"{_DIFF}1 added, 1 changed, 1 removed applied\n"
    assert console.posts[-1][:2] == (
        f"{_PATH}/apply", body | {"prune": False, "fingerprint": "f1", "confirmation": ""},
    )  # fmt: skip


def test_second_import_has_no_changes() -> None:
    """Nothing is asked or applied. The file may be standard input."""
    with run_console() as console:
        console.responses[f"{_PATH}/plan"] = (200, _PLAN | {"changes": []})
        assert _run(console, "import", "-", stdin="rules: []").output == "No changes.\n"
        assert (
            '"changes": []' in _run(console, "import", "-", "--json", "--dry-run", stdin="rules: []").output
        )
    assert console.posts[0][1]["document"] == "rules: []"


def test_window_of_everything_requires_a_flag() -> None:
    """As `refloat maintenance add` does."""
    with run_console() as console:
        console.responses[f"{_PATH}/plan"] = (200, _PLAN | {"is_confirmation_required": True})
        console.responses[f"{_PATH}/apply"] = (200, _PLAN)
        assert "Add --everything to confirm" in _run(console, "import", "-", "--yes").output
        assert _run(console, "import", "-", "--yes", "--everything").exit_code == 0
    assert console.posts[-1][1]["confirmation"] == "everything"


def test_problems_are_shown_with_their_lines() -> None:
    """Nothing was changed; a file that cannot be read is an error, too."""
    problems = {"line 5": "unknown key 'colour' of a rule", "line 7": "the name of a rule is missing"}
    with run_console() as console:
        detail = "The document cannot be imported, and nothing was applied."
        console.responses[f"{_PATH}/plan"] = (400, {"detail": detail, "problems": problems})
        outcome = _run(console, "import", "-")
        assert outcome.exit_code == 2
        assert "\n  line 5: unknown key 'colour' of a rule\n  line 7: the name" in outcome.output
        assert "cannot be read" in _run(console, "import", "/no/such/file").output
