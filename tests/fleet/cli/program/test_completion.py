from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fleet.cli.main import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_completes_by_asking_the_program(shell: str) -> None:
    process = CliRunner().invoke(main, ["completion", shell])
    assert process.exit_code == 0
    assert f"_REFLOAT_COMPLETE={shell}_complete" in process.output


def test_commands_are_completed() -> None:
    """The program lists the commands that begin with what was typed."""
    environment = {"_REFLOAT_COMPLETE": "bash_complete", "COMP_WORDS": "refloat dem", "COMP_CWORD": "1"}
    process = CliRunner().invoke(main, env=environment, prog_name="refloat")
    assert process.output == "plain,demo\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("refloat serve --po", {"--port"}),
        ("refloat token ", {"create", "list", "revoke", "--help"}),
        ("refloat user create --pass", {"--password-stdin"}),
        ("refloat user no-such ", set()),
    ],
)
def test_commands_of_the_console_complete_what_their_help_lists(
    tmp_path: Path, line: str, expected: set[str]
) -> None:
    """Their options and subcommands are those of another program."""
    environment = {
        "_REFLOAT_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
        "REFLOAT_HOME": str(tmp_path),
    }
    process = CliRunner().invoke(main, env=environment, prog_name="refloat")
    assert {entry.removeprefix("plain,") for entry in process.output.split()} == expected


def test_unknown_shell_is_code_2() -> None:
    assert CliRunner().invoke(main, ["completion", "csh"]).exit_code == 2
