"""Snippets keep the values of the policies in every syntax."""

from __future__ import annotations

import shlex

import yaml

from fleet.protocol.policies import snippets
from fleet.protocol.recovery.service_config import RFD_VARIABLE

_VALUES = {RFD_VARIABLE: '{"a": "it\'s 5% of $HOME\\n"}', "B": "1m"}


def test_values_are_quoted_for_each_syntax() -> None:
    """Quotes, dollar signs and backslashes survive."""
    shell_snippet = snippets.shell("auth", _VALUES)
    assert shlex.split(shell_snippet.splitlines()[1])[1] == f"{RFD_VARIABLE}={_VALUES[RFD_VARIABLE]}"
    compose_environment = yaml.safe_load(snippets.compose("auth", _VALUES))["services"]["auth"]["environment"]
    assert compose_environment[RFD_VARIABLE].replace("$$", "$") == _VALUES[RFD_VARIABLE]
    helm_environment = yaml.safe_load(snippets.helm("auth", _VALUES))["auth"]["extraEnv"]
    assert {variable["name"]: variable["value"] for variable in helm_environment} == _VALUES
    systemd_unit = snippets.systemd("auth", _VALUES)
    assert "5%% of $HOME\\\\n" in systemd_unit
    assert '\\"a\\"' in systemd_unit


def test_all_kinds_or_none() -> None:
    """Without policies there are no snippets."""
    assert [kind for kind, _ in snippets.all_of("auth", _VALUES)] == [
        "systemd",
        "compose",
        "Helm",
        "shell",
    ]
    assert snippets.all_of("auth", {}) == ()
