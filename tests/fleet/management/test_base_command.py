from __future__ import annotations

from fleet.management.commands.prepare import Command


def test_hidden_options_are_accepted() -> None:
    """Scripts that use them go on."""
    parser = Command().create_parser("refloat", "prepare")
    assert "--verbosity" not in parser.format_help()
    assert parser.parse_args(["--verbosity", "2"]).verbosity == 2
