from __future__ import annotations

from typing import Any

from click.testing import CliRunner, Result

from fleet.cli.main import main
from tests.fakes.console import TOKEN, FakeConsole, run_console

_RULE: dict[str, Any] = {
    "number": 3, "cluster": "", "name": "Agents stranded", "kind": "stranded", "severity": "critical",
    "condition": "When 5 agents are stranded by one cause for 2 polls.", "notifications": "Notify at once.",
    "is_enabled": True, "is_overridden": False, "min_count": 5, "version": "v1",
}  # fmt: skip
_PATH = "/api/v1/alert-rules"


def _run(console: FakeConsole, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["rules", *arguments, "--url", console.url, "--token", TOKEN])


def _serve(console: FakeConsole) -> None:
    console.responses[_PATH] = (
        200,
        {"rules": [_RULE, _RULE | {"number": 4, "name": "x", "is_enabled": False}]},
    )
    console.responses[f"{_PATH}/3"] = (200, _RULE)


def test_rules_are_listed_and_shown() -> None:
    """With their condition in words."""
    with run_console() as console:
        _serve(console)
        output = _run(console, "list").output
        assert "min count" in _run(console, "show", "Agents stranded").output
    assert "When 5 agents are stranded" in output
    assert [
        state in line for state, line in zip(("enabled", "disabled"), output.splitlines()[1:], strict=True)
    ]


def test_rule_is_shown_with_units() -> None:
    """Durations and shares as the options take them, with their labels."""
    values = {
        "min_share": 0.005, "pending_rounds": 2, "pending_seconds": 0.0, "recover_seconds": 300.0,
        "group_wait_seconds": 30.0, "group_interval_seconds": 90.0, "repeat_seconds": 14400.0, "is_builtin": True,
    }  # fmt: skip
    with run_console() as console:
        console.responses[_PATH] = (200, {"rules": [_RULE | values]})
        output = _run(console, "show", "3").output
    rows = [line.partition("  ") for line in output.splitlines()]
    assert [(label, text.strip()) for label, _, text in rows][-10:] == [
        ("min count", "5"),
        ("min share", "0.5 %"),
        ("pending polls", "2"),
        ("pending time", "0 s"),
        ("resolve after", "5 min"),
        ("group wait", "30 s"),
        ("group interval", "1 min 30 s"),
        ("repeat interval", "4 h"),
        ("builtin", "yes"),
        ("state", "enabled"),
    ]


def test_rule_is_added_with_durations_and_a_percentage() -> None:
    """The API takes seconds and a fraction."""
    with run_console() as console:
        console.responses[_PATH] = (201, _RULE)
        outcome = _run(
            console, "add", "web", "--kind", "stranded", "--severity", "warning", "--min-share", "0.5 %",
            "--pending-time", "10 min", "--repeat-interval", "12h", "--min-count", "3", "--agent-set", "web",
        )  # fmt: skip
    assert outcome.output.startswith("rule 3 added: Agents stranded. When 5 agents")
    assert console.posts[0][1] == {
        "name": "web", "kind": "stranded", "severity": "warning", "scope": "installation", "min_share": 0.005,
        "pending_seconds": 600, "repeat_seconds": 43200, "min_count": 3, "agent_set": "web",
    }  # fmt: skip


def test_rule_is_changed_enabled_and_disabled() -> None:
    """With the version that was read."""
    with run_console() as console:
        _serve(console)
        assert "changed" in _run(console, "change", "3", "--severity", "info", "--group-wait", "0s").output
        assert _run(console, "disable", "3").output == "rule 3 disabled: Agents stranded\n"
        assert _run(console, "enable", "Agents stranded").output == "rule 3 enabled: Agents stranded\n"
        assert [post[1] for post in console.posts] == [
            {"version": "v1", "severity": "info", "group_wait_seconds": 0},
            {"version": "v1", "is_enabled": False},
            {"version": "v1", "is_enabled": True},
        ]
        assert "nothing to change" in _run(console, "change", "3").output
        for wrong in ("101", "many"):
            assert "is not a percentage" in _run(console, "change", "3", "--min-share", wrong).output


def test_rule_is_overridden_and_deleted() -> None:
    """The deletion is confirmed."""
    with run_console() as console:
        _serve(console)
        console.responses[f"{_PATH}/3/override"] = (200, _RULE | {"number": 5, "cluster": "eu"})
        assert "rule 5 of cluster eu overrides Agents stranded" in _run(console, "override", "3").output
        console.responses[f"{_PATH}/3/delete"] = (200, _RULE)
        assert "Add --yes" in _run(console, "delete", "3").output
        assert _run(console, "delete", "3", "--yes").output == "rule 3 deleted: Agents stranded\n"


def test_backtest_lists_the_times() -> None:
    """With the thresholds of the flags."""
    backtest: dict[str, Any] = {
        "summary": "Would have fired once.", "condition": "When 2 agents are stranded.", "is_supported": True,
        "omitted_count": 1,
        "periods": [
            {"at": "2026-01-01T00:00:00Z", "duration": "5 min", "peak_count": 7, "cause": "proxy-1", "incident": None,
             "inhibited_by": ""},
        ],
    }  # fmt: skip
    with run_console() as console:
        _serve(console)
        console.responses[f"{_PATH}/3/backtest?min_count=2&pending_seconds=60.0"] = (200, backtest)
        output = _run(console, "backtest", "3", "--min-count", "2", "--pending-time", "1min").output
    assert output.splitlines()[1] == "Would have fired once."
    assert "proxy-1" in output
    assert output.endswith("1 older times are not listed\n")
